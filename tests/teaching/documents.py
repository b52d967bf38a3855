"""Reading the instructor's pages and the lessons that they speak of."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# By number: "02", and "02b" for the second part of a lesson.
LESSONS = {path.name.partition("_")[0]: path for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]*_*.ipynb"))}
PLANS = (DOCS / "lesson-plans.md").read_text(encoding="utf-8")


def cells(lesson):
    return json.loads(LESSONS[lesson].read_text(encoding="utf-8"))["cells"]


def plan(lesson):
    [text] = re.findall(rf"^## {lesson} · .+?(?=^## |\Z)", PLANS, re.MULTILINE | re.DOTALL)
    return text


def table(text, first):
    """The rows of the table whose first heading is `first`, as lists of cells."""
    found = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in found[1].splitlines()]


def cells_by_part(lesson):
    """The cells under each heading of a lesson; a step goes by its number, an exercise by "Exercise 1"."""
    found, part = {"": []}, ""
    for cell in cells(lesson):
        if cell["cell_type"] == "code":
            found[part].append(cell)
            continue
        for line in "".join(cell["source"]).splitlines():
            if line.startswith(("## ", "### ")):
                part = re.match(r"(Step|Exercise) \d|.+", line.lstrip("# "))[0]
                found.setdefault(part, [])
            found[part].append({"cell_type": "markdown", "source": [line]})
    return found
