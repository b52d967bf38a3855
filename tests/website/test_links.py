"""What the built pages say and where they lead."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup

from website.conftest import ROOT

LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, BeautifulSoup]:
    """Every page by its path in the site; what lies in _static are templates that the theme leaves there."""
    files = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    return {file.relative_to(site).as_posix(): BeautifulSoup(file.read_bytes(), "html.parser") for file in files}


def references(page: BeautifulSoup) -> Iterator[str]:
    for name in ("href", "src", "data", "poster"):
        yield from (element[name] for element in page.find_all(attrs={name: True}))
    for element in page.find_all(attrs={"srcset": True}):
        yield from (part.split()[0] for part in element["srcset"].split(","))


def test_every_reference_leads_somewhere(site: Path, pages: dict[str, BeautifulSoup]):
    anchors = {name: {element["id"] for element in page.find_all(id=True)} for name, page in pages.items()}
    dead = []
    for name, page in pages.items():
        for reference in references(page):
            parts = urlsplit(urljoin(f"https://site/{name}", reference))
            if parts.netloc != "site" or parts.scheme != "https":
                continue
            target, anchor = unquote(parts.path).lstrip("/"), unquote(parts.fragment)
            if not (site / target).is_file():
                dead.append(f"{name}: {reference}")
            elif anchor and target in anchors and anchor not in anchors[target]:
                dead.append(f"{name}: {reference} (no such anchor)")
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, BeautifulSoup]):
    """Links may lead away; what a page loads by itself may not."""
    loaded = [
        f"{name}: {address}"
        for name, page in pages.items()
        for element in page.find_all(["script", "link", "img", "iframe", "source", "object", "video", "audio"])
        for address in [element.get("src") or element.get("href") or element.get("data") or ""]
        if urlsplit(address).netloc
    ]
    assert loaded == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_is_whole(lesson: Path, pages: dict[str, BeautifulSoup]):
    page = pages[f"notebooks/{lesson.stem}.html"]
    cells = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    sources = {kind: ["".join(c["source"]) for c in cells if c["cell_type"] == kind] for kind in ("markdown", "code")}

    headings = [
        line.lstrip("# ") for text in sources["markdown"] for line in text.splitlines() if re.match("#+ ", line)
    ]
    shown = [heading.get_text().removesuffix("#") for heading in page.article.find_all(re.compile("h[1-6]"))]
    assert [plain(heading) for heading in shown] == [plain(heading) for heading in headings]

    inputs = [cell.get_text().strip() for cell in page.select(".cell_input pre")]
    assert inputs == [code.strip() for code in sources["code"] if code.strip()]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    # Those without data are covers: see tools/cells.py.
    rich = sum(output["output_type"] != "stream" and output.get("data") != {} for output in outputs)
    assert len(page.select(".cell_output > .output:not(.stream)")) == rich
    printing = [cell for cell in cells if any(o["output_type"] == "stream" for o in cell.get("outputs", []))]
    assert len(page.select(".cell_output:has(> .stream)")) == len(printing)
    assert page.find("meta", attrs={"name": "description"})["content"].startswith("The question.")


def plain(heading: str) -> str:
    """Without what Markdown and typography make of the same words."""
    return heading.replace("`", "").replace("’", "'").replace("*", "").strip()


def test_lessons_follow_one_another(pages: dict[str, BeautifulSoup]):
    names = [path.stem for path in LESSONS]
    for index, name in enumerate(names):
        page = pages[f"notebooks/{name}.html"]
        before = names[index - 1] + ".html" if index else "../index.html"
        assert page.select_one("a.left-prev")["href"] == before
        if index + 1 < len(names):
            assert page.select_one("a.right-next")["href"] == names[index + 1] + ".html"


def test_every_page_is_in_the_navigation(pages: dict[str, BeautifulSoup]):
    listed = {a["href"].partition("#")[0] for a in pages["index.html"].select(".bd-sidebar-primary nav a")}
    assert listed == set(pages) - {"index.html", "search.html"}


def test_lessons_can_be_launched(pages: dict[str, BeautifulSoup]):
    for path in LESSONS:
        links = [a["href"] for a in pages[f"notebooks/{path.stem}.html"].select(".admonition.note a")]
        assert links[:3] == [
            f"https://mybinder.org/v2/gh/someone/course/main?urlpath=lab/tree/notebooks/{path.name}",
            f"https://colab.research.google.com/github/someone/course/blob/colab/notebooks/{path.name}",
            "../index.html#start",
        ]
