"""A machine and a model are chosen with buttons, which work by keyboard; the picture follows."""

from __future__ import annotations

import ipywidgets
import pytest
from benchmark.reports import CONFIG, PEAKS

from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100, T4
from llmlesson.widgets import MachineExplorer

POINTS = {"64 tokens": PEAKS.place(cost.prefill(CONFIG, 64), 0.0002)}


@pytest.fixture
def explorer():
    explorer = MachineExplorer(PEAKS, POINTS, [T4, H100], {"1B": CONFIG, "2B": CONFIG})
    yield explorer
    explorer.close()


def picture(explorer):
    [output] = [part for part in explorer.ui.children if isinstance(part, ipywidgets.Output)]
    [shown] = output.outputs
    return shown["data"]


def choose(explorer, name, value):
    [control] = [part for part in explorer.ui.children if getattr(part, "description", "") == name]
    control.value = value


def test_it_begins_with_the_last_card_and_the_second_model(explorer):
    assert picture(explorer)["text/plain"].startswith("a model of 2B on H100.")
    names = [trace["name"] for trace in picture(explorer)["application/vnd.plotly.v1+json"]["data"]]
    assert names == ["this machine", "H100", "computed for H100", "measured"]


def test_the_picture_follows_both_choices(explorer):
    choose(explorer, "machine", "T4")
    choose(explorer, "model", "1B")
    assert picture(explorer)["text/plain"].startswith("a model of 1B on T4.")
    assert "T4" in picture(explorer)["text/html"]
    choose(explorer, "machine", "this machine")
    assert "computed for this machine" in str(picture(explorer)["application/vnd.plotly.v1+json"])
    assert explorer.to_html() == picture(explorer)["text/html"]


def test_all_that_is_computed_says_so(explorer):
    [machine] = [part for part in explorer.ui.children if getattr(part, "description", "") == "machine"]
    assert [label for label, _ in machine.options] == ["this machine", "T4 (computed)", "H100 (computed)"]
