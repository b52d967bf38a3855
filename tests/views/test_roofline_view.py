from __future__ import annotations

import pytest
from benchmark.reports import CONFIG, PEAKS, REPORT

from llmlesson.measure import cost
from llmlesson.views.bench import page
from llmlesson.views.plot import CLEAR
from llmlesson.views.roofline import roofline_figure, roofline_text
from llmlesson.views.style import PALETTE

POINTS = {
    "prefill": PEAKS.place(cost.prefill(CONFIG, 64), 0.0002),
    "decode": PEAKS.place(cost.decode(CONFIG, 64), 0.0001),
}


def test_the_line_is_the_lower_of_both_limits():
    line = roofline_figure(PEAKS, POINTS).data[0]
    assert line.x[1] == PEAKS.ridge == 5
    for x, y in zip(line.x, line.y, strict=True):
        assert y * 1e9 == pytest.approx(min(x * PEAKS.bytes_per_second, PEAKS.flops_per_second))
    assert line.x[0] < min(point.cost.intensity for point in POINTS.values())
    assert line.x[2] > max(point.cost.intensity for point in POINTS.values())


def test_each_phase_is_a_labelled_point_under_its_limit():
    figure = roofline_figure(PEAKS, POINTS)
    _, memory, compute = figure.data
    assert list(memory.text) == ["decode"]
    assert list(compute.text) == ["prefill"]
    assert memory.marker.symbol != compute.marker.symbol
    assert memory.x[0] == POINTS["decode"].cost.intensity
    assert memory.y[0] * 1e9 == pytest.approx(POINTS["decode"].flops_per_second)
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_it_is_transparent():
    layout = roofline_figure(PEAKS, POINTS).layout.template.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == CLEAR
    assert CLEAR.endswith(",0)")


def test_prefill_and_decode_have_the_colours_of_their_work():
    _, memory, compute = roofline_figure(PEAKS, POINTS).data
    assert list(memory.marker.color) == [PALETTE["answer"].both]
    assert list(compute.marker.color) == [PALETTE["prompt"].both]


def test_no_points_is_the_bare_roofline():
    figure = roofline_figure(PEAKS, {})
    assert len(figure.data[0].x) == 3
    assert not figure.data[1].x


def test_the_text_says_the_same():
    text = roofline_text(PEAKS, POINTS)
    assert "20.0 GB/s" in text
    [line] = [line for line in text.splitlines() if line.startswith("decode")]
    point = POINTS["decode"]
    for part in (f"{point.cost.intensity:.1f} FLOP/byte", f"MBU {point.mbu:4.0%}", "limit: memory"):
        assert part in line


def test_the_page_shows_all_contenders_and_our_phases():
    html = page(REPORT)
    for row in REPORT.rows:
        assert row.contender in html
    for label in ("prefill 32", "decode 32", "decode 32 \\u00d7 4"):
        assert label in html
    assert html.count("plotly.js v") == 1
    assert 'src="http' not in html
