"""What other machines could do, beside what was measured: at their limits, hollow, and never mixed up."""

from __future__ import annotations

import json

import pytest
import torch
from benchmark.reports import CONFIG, PEAKS

from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100, T4, DataSheet
from llmlesson.views.machines import TOKENS, machines_figure, machines_picture
from llmlesson.views.plot import Pictured
from llmlesson.views.roofline import pictured_roofline

POINTS = {"64 tokens": PEAKS.place(cost.prefill(CONFIG, 64), 0.0002)}
MODELS = {"small": CONFIG, "same": CONFIG}


@pytest.fixture(scope="module")
def pictured():
    return machines_figure(PEAKS, POINTS, [T4, H100], MODELS)


def visible(figure, which):
    """The names of the traces that are seen once button `which` of the first menu was pressed."""
    change, traces = figure.layout.updatemenus[0].buttons[which].args
    seen = dict(zip(traces, change["visible"], strict=True))
    return [trace.name for index, trace in enumerate(figure.data) if seen.get(index, trace.visible is not False)]


def test_what_was_measured_stays_whatever_machine_is_chosen(pictured):
    names = ["this machine", "T4", "H100"]
    for which, name in enumerate(names):
        roofs = ["this machine"] if which == 0 else ["this machine", name]
        assert visible(pictured.figure, which) == [*roofs, f"computed for {name}", "measured"]


def test_measured_is_filled_and_solid_computed_is_hollow_and_dashed(pictured):
    traces = {trace.name: trace for trace in pictured.figure.data}
    assert traces["this machine"].line.dash == "solid"
    assert traces["H100"].line.dash == traces["T4"].line.dash != "solid"
    assert traces["computed for H100"].marker.symbol == "circle-open"
    assert traces["measured"].marker.symbol is None
    assert all(text.startswith("computed: ") for text in traces["computed for H100"].hovertext)


def test_computed_points_lie_on_the_limits_of_the_chosen_machine(pictured):
    for card in (T4, H100):
        [trace] = [trace for trace in pictured.figure.data if trace.name == f"computed for {card.name}"]
        for tokens, x, y in zip(TOKENS, trace.x, trace.y, strict=True):
            work = cost.prefill(CONFIG, tokens, dtype=torch.bfloat16)
            assert x == work.intensity
            assert y * 1e9 == pytest.approx(work.flops / card.least_seconds(work))


def test_each_model_brings_its_numbers_to_all_machines(pictured):
    for button in pictured.figure.layout.updatemenus[1].buttons:
        change, traces = button.args
        assert [pictured.figure.data[index].name[:8] for index in traces] == ["computed"] * 3
        assert len(change["x"]) == len(change["hovertext"]) == 3


def test_weights_that_do_not_fit_are_said_to():
    card = DataSheet("tiny", T4.flops_per_second, T4.bytes_per_second, 10.0, "nowhere")
    figure = machines_figure(PEAKS, POINTS, [card], MODELS).figure
    assert "more than its memory" in figure.data[3].hovertext[0]
    assert "more than its memory" not in figure.data[2].hovertext[0]  # what this machine holds, nobody asked


@pytest.mark.parametrize(
    "shown", [machines_figure(PEAKS, POINTS, [T4, H100], MODELS), pictured_roofline(PEAKS, POINTS)]
)
def test_a_page_without_a_kernel_has_a_picture_of_the_same_data(shown):
    assert isinstance(shown, Pictured)
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    assert len(json.dumps(bundle)) < 100_000
    point = POINTS["64 tokens"]
    assert f"{point.flops_per_second / 1e9:,.0f} GFLOP/s" in bundle["text/html"]
    assert "http" not in bundle["text/html"].replace("http://www.w3.org/2000/svg", "")


def test_the_still_of_the_cards_says_that_it_is_computed():
    html = machines_picture([T4, H100], CONFIG)
    assert html.count("computed, ridge at") >= 2
    assert "measured, ridge" not in html
    assert "295" in html
    assert 'stroke-dasharray="4 3"' in html
