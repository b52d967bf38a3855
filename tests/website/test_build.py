"""What a build does with a lesson that runs, one that doesn't, and dead links: on a course of a single lesson."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from pages import unbroken
from website.conftest import ROOT

README = "# A course\n\n[Lesson](notebooks/00_lesson.ipynb)\n\n## Start\n\nRun it.\n"
INDEX = """
```{include} README.md
:end-before: "## Start"
```

## Start

```{toctree}
:hidden:

notebooks/00_lesson
```
"""
TITLE = "# 00 · A lesson\n\n**The question.** What is shown? See the [README](../README.md#start)."
WIDGET = "import ipywidgets\n\nipywidgets.Button(description='a button')"


class Course:
    """A course of one lesson, and a site that was there before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "public"

    def write(self, *code: str, title: str = TITLE) -> None:
        cells = [new_markdown_cell(title), *(new_code_cell(source) for source in code)]
        metadata = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
        nbformat.write(new_notebook(cells=cells, metadata=metadata), self.root / "notebooks" / "00_lesson.ipynb")

    def build(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, self.root / "tools" / "pages.py", *options]
        environment = {**os.environ, "GITHUB_REPOSITORY": ""}
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)

    @property
    def page(self) -> BeautifulSoup:
        return BeautifulSoup((self.site / "notebooks" / "00_lesson.html").read_bytes(), "html.parser")


@pytest.fixture
def course(tmp_path: Path) -> Course:
    for name in ("binder", "deploy", "docs", "notebooks", "public", "tools"):
        (tmp_path / name).mkdir()
    for name in ("pages.py", "notebooks.py", "cells.py", "lesson_time.py"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    shutil.copytree(ROOT / "site", tmp_path / "site")
    (tmp_path / "site" / "index.md").write_text(INDEX, encoding="utf-8")
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    (tmp_path / "LICENSE").touch()
    (tmp_path / "public" / "before").touch()
    return Course(tmp_path)


def test_lesson_is_run_and_its_widget_becomes_text(course: Course):
    course.write("print(6 * 7)", WIDGET)
    built = course.build()
    assert built.returncode == 0, built.stderr
    assert [output.get_text().strip() for output in course.page.select(".output")] == [
        "42",
        "Button(description='a button', style=ButtonStyle())",
    ]
    for trouble in ("application/vnd.jupyter", "jupyter-widgets", "require.min.js"):
        assert trouble not in str(course.page)
    note = course.page.select_one(".admonition.note").get_text()
    assert re.search(r"one machine \(.+, \d+ CPUs, PyTorch \d", note)
    assert leftovers(course) == []
    assert not (course.site / "before").exists()


def test_stored_outputs_are_shown_as_they_are(course: Course):
    course.write("print(6 * 7)")
    assert course.build("--stored").returncode == 0
    assert course.page.select(".output") == []
    note = course.page.select_one(".admonition.note")
    assert "Cells that measure times have no output here" in note.get_text()
    # Without the repository's address, no link to services that need it.
    assert [a["href"] for a in note.select("a")] == ["../index.html#start"]


def test_sizes_in_pictures_and_tables_stay_on_one_line(course: Course):
    course.write("from IPython.display import HTML\nHTML('<p>1.75 MB = 1.67 MiB, and 46,080 bytes</p>')")
    assert course.build().returncode == 0
    assert course.page.select_one(".output p").get_text() == "1.75~MB~=~1.67~MiB, and 46,080~bytes".replace(
        "~", "\N{NO-BREAK SPACE}"
    )


def test_nothing_is_replaced_when_a_cell_fails(course: Course):
    course.write("1 / 0")
    assert "ZeroDivisionError" in refused(course)


def test_nothing_is_replaced_when_links_are_dead(course: Course):
    course.write(title=TITLE + " [one](../missing.md) [two](../README.md#missing) [three](#missing)")
    said = refused(course, "--stored")
    for finding in ("'../missing.md'", "in doc 'index': 'missing'", "target not found: 'missing'"):
        assert finding in said


def refused(course: Course, *options: str) -> str:
    """What a build says that fails and leaves everything as it was."""
    built = course.build(*options)
    assert built.returncode == 1
    assert "no new site" in built.stderr
    assert [path.name for path in course.site.iterdir()] == ["before"]
    assert leftovers(course) == []
    return built.stderr


def leftovers(course: Course) -> list[str]:
    return [path.name for path in course.root.iterdir() if path.name.startswith(".")]


def test_sizes_stay_on_one_line():
    text = (
        "# A 2 GB page\n\n524.29 MB = 500.00 MiB, or 46,080\nbytes: `2 bytes`, [1 GB](1 GB.md)\n\n```\n8 GB\n```\n16 GB"
    )
    kept = (
        "# A 2 GB page\n\n524.29~MB~=~500.00~MiB, or 46,080~bytes: `2 bytes`, [1~GB](1 GB.md)\n\n```\n8 GB\n```\n16~GB"
    )
    assert unbroken(text) == kept.replace("~", "\N{NO-BREAK SPACE}")
