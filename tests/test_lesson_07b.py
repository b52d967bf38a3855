"""What lesson 07b says in words is so; it runs without a load balancer, and leaves no process behind."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from statistics import median

import psutil
import pytest

from llmlesson.errors import LessonError
from llmlesson.lessons import recorded
from llmlesson.lessons.recorded import or_recorded
from llmlesson.server.play import Ask

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "07b_balancing.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
SOURCE = {cell["id"]: "".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"}
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())


@pytest.fixture
def without_a_balancer(monkeypatch):
    """The lesson's names after all its cells have run where no balancer is installed, and what they printed."""
    monkeypatch.setattr("llmlesson.server.balancer.shutil.which", lambda *args, **options: None)
    printed = io.StringIO()
    namespace: dict = {}
    with contextlib.redirect_stdout(printed):
        for source in SOURCE.values():
            exec(source, namespace)
    return namespace, printed.getvalue()


def test_it_runs_without_a_load_balancer_and_says_what_to_install(without_a_balancer):
    lesson, printed = without_a_balancer
    assert "pip install -r requirements-balancer.txt" in printed
    assert printed.count("(No load balancer here: this was measured on another machine.)") == 7
    assert psutil.Process().children(recursive=True) == []
    # And what was recorded is what the lesson says.
    turns, least = lesson["turns"], lesson["least"]
    assert {one.tokens for one in turns if one.replica == "A"} in ({30}, {2})
    assert median(one.ttft for one in turns) < 0.8 * median(one.ttft for one in least)
    assert max(one.ttft for one in turns) > max(one.ttft for one in least)
    assert max(one.ended for one in turns) > max(one.ended for one in least)
    assert lesson["fewest"] >= 14
    assert lesson["change"] < 0.8
    assert lesson["held"].ttft > 2 * lesson["direct"].ttft
    cut = [one for one in lesson["killed"] if one.error]
    assert [(one.replica, one.status) for one in cut] == [("A", 200)] * 2
    assert {one.replica for one in lesson["killed"][4:]} == {"B"}
    assert not any(one.error for one in lesson["gentle"])
    assert [one.replica for one in lesson["gentle"]].count("A") == 2
    assert {one.replica for one in lesson["gentle"][4:]} == {"B"}


def test_what_nobody_has_tried_is_refused_without_a_balancer(monkeypatch):
    monkeypatch.setattr(recorded, "find_balancer", lambda: None)
    with pytest.raises(LessonError, match=r"has not been recorded.*requirements-balancer\.txt"):
        or_recorded(lambda asks: [])([Ask(tokens=999)])


def test_all_processes_are_in_a_with_block():
    started = [source for source in SOURCE.values() if "Replicas(" in source or "Balancer(" in source]
    assert started == [SOURCE["two-replicas"]]
    assert "with Replicas(2, token_seconds=0.02, slots=slots) as replicas, Balancer(" in started[0]
    assert "sends a word every 0.02 seconds" in PROSE
    assert not any("port=" in source for source in SOURCE.values())


def test_it_needs_no_model():
    assert not any("load(" in source or "import torch" in source for source in SOURCE.values())
