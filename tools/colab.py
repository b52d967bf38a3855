"""Copies of the lessons that run in Google Colab: a first cell installs the course, and links work there.

    python tools/colab.py OWNER/REPOSITORY OUTPUT_FOLDER

OWNER/REPOSITORY is where the course is on GitHub. Its branch `colab` holds the copies in `notebooks/`; the first cell
installs the package from that branch too, so that the two always match. OUTPUT_FOLDER may be `notebooks` itself, in a
checkout made for this (.github/workflows/colab.yml).

Colab shows outputs and sources that should be hidden on opening (tools/cells.py). So the copies have no outputs, and
what is collapsed in JupyterLab is a form in Colab, which shows only its title.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
CELL = Path(__file__).with_name("colab_cell.py")
CELL_ID = "colab-setup"
BRANCH = "colab"
TITLE = re.compile(r"^# ")
LINK = re.compile(r"\]\(([^()\s#]+)(#[^()\s]*)?\)")


def for_colab(notebook: dict[str, Any], repository: str) -> dict[str, Any]:
    """The notebook with the first cell in front and every link to a file beside it made absolute."""
    if notebook["cells"][0].get("id") == CELL_ID:
        raise ValueError("it already has the cell for Colab")

    def absolute(link: re.Match[str]) -> str:
        file, anchor = link[1], link[2] or ""
        if not (NOTEBOOKS / file).is_file():
            return link[0]
        place = "colab.research.google.com/github" if file.endswith(".ipynb") else "github.com"
        return f"](https://{place}/{repository}/blob/{BRANCH}/notebooks/{file}{anchor})"

    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK.sub(absolute, source).splitlines(keepends=True)
            continue
        cell["outputs"], cell["execution_count"] = [], None
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            cell["metadata"]["cellView"] = "form"
            cell["source"] = TITLE.sub("# @title ", source).splitlines(keepends=True)
    source = CELL.read_text(encoding="utf-8").rstrip().replace("OWNER/REPOSITORY@BRANCH", f"{repository}@{BRANCH}")
    first = {
        "cell_type": "code",
        "execution_count": None,
        "id": CELL_ID,
        "metadata": {"cellView": "form"},  # Colab shows the title alone
        "outputs": [],
        "source": source.splitlines(keepends=True),
    }
    return {**notebook, "cells": [first, *notebook["cells"]]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write copies of the lessons for Google Colab.")
    parser.add_argument("repository", metavar="OWNER/REPOSITORY")
    parser.add_argument("folder", metavar="OUTPUT_FOLDER", type=Path)
    options = parser.parse_args()
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", options.repository):
        parser.error(f"{options.repository!r} is not OWNER/REPOSITORY")
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        try:
            copy = for_colab(json.loads(path.read_text(encoding="utf-8")), options.repository)
        except ValueError as error:
            parser.error(f"{path.name}: {error}")
        text = json.dumps(copy, indent=1, ensure_ascii=False) + "\n"
        (options.folder / path.name).write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
