"""What other machines could do, beside what was measured: at their limits, hollow, and never mixed up."""

from __future__ import annotations

import json
import re

import pytest
import torch
from benchmark.reports import CONFIG, PEAKS

from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100, T4, DataSheet
from llmlesson.views.machines import TOKENS, machines_figure, machines_picture
from llmlesson.views.plot import Pictured
from llmlesson.views.roofline import pictured_roofline

POINTS = {"64 tokens": PEAKS.place(cost.prefill(CONFIG, 64), 0.0002)}


def on(card, config=CONFIG):
    return machines_figure(PEAKS, POINTS, card, "a model of 1B", config)


def traces(shown):
    return {trace.name: trace for trace in shown.figure.data}


@pytest.mark.parametrize("card", [None, T4, H100])
def test_what_was_measured_stays_whatever_machine_is_chosen(card):
    others = ["this machine"] if card is None else ["this machine", card.name]
    assert list(traces(on(card))) == [*others, f"computed for {others[-1]}", "measured"]
    assert len(on(card).figure.layout.annotations) == len(others)


def test_measured_is_filled_and_solid_computed_is_hollow_and_dashed():
    found = traces(on(H100))
    assert found["this machine"].line.dash == "solid"
    assert found["H100"].line.dash != "solid"
    assert found["computed for H100"].marker.symbol == "circle-open"
    assert found["measured"].marker.symbol is None
    assert all(text.startswith("computed: a model of 1B on H100") for text in found["computed for H100"].hovertext)


@pytest.mark.parametrize("card", [T4, H100])
def test_computed_points_lie_on_the_limits_of_the_chosen_machine(card):
    trace = traces(on(card))[f"computed for {card.name}"]
    for tokens, x, y in zip(TOKENS, trace.x, trace.y, strict=True):
        work = cost.prefill(CONFIG, tokens, dtype=torch.bfloat16)
        assert x == work.intensity
        assert y * 1e9 == pytest.approx(work.flops / card.least_seconds(work))


def test_this_machine_computes_in_the_numbers_that_its_limits_were_measured_with():
    trace = traces(on(None))["computed for this machine"]
    dtype = getattr(torch, PEAKS.dtype)
    assert list(trace.x) == [cost.prefill(CONFIG, tokens, dtype=dtype).intensity for tokens in TOKENS]


def test_weights_that_do_not_fit_are_said_to():
    card = DataSheet("tiny", T4.flops_per_second, T4.bytes_per_second, 10.0, "nowhere")
    assert "more than its memory" in traces(on(card))["computed for tiny"].hovertext[0]
    assert "more than its memory" not in traces(on(None))["computed for this machine"].hovertext[0]  # nobody asked


@pytest.mark.parametrize(
    "shown", [machines_figure(PEAKS, POINTS, H100, "a model", CONFIG), pictured_roofline(PEAKS, POINTS)]
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
    assert "Solid and filled" not in html
    assert "Solid and filled" in machines_figure(PEAKS, POINTS, H100, "a model", CONFIG).html


def test_no_label_of_the_still_is_cut_off():
    html = machines_picture([T4, H100], CONFIG)
    assert all(float(y) >= 12 for y in re.findall(r'<text x="[\d.]+" y="(-?[\d.]+)"', html))
