"""Kinds of attention under the roof of a card: at their places, all computed, and with a still of the same data."""

from __future__ import annotations

import json
import re

import pytest

from llmlesson.measure.data_sheets import H100
from llmlesson.views.attention_roofline import attention_roofline

POINTS = {"own heads": 1.0, "four share": 4.0, "many share": 500.0}


def test_points_lie_on_the_limits_hollow_and_computed():
    roof, points = attention_roofline(H100, POINTS).figure.data
    assert roof.line.dash != "solid"
    assert points.marker.symbol == "circle-open"
    assert list(points.x) == list(POINTS.values())
    speeds = [H100.bytes_per_second, 4 * H100.bytes_per_second, H100.flops_per_second]
    assert [1e9 * y for y in points.y] == pytest.approx(speeds)
    assert all(text.startswith("computed: ") for text in points.hovertext)
    assert "at most 0.3 % of the card’s arithmetic" in points.hovertext[0]
    assert "at most 100.0 % of the card’s arithmetic" in points.hovertext[2]


def test_a_page_without_a_kernel_has_a_picture_of_the_same_data():
    bundle = attention_roofline(H100, POINTS)._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    assert len(json.dumps(bundle)) < 100_000
    assert "own heads: 1.0 FLOPs per byte, 3,350 GFLOP/s" in bundle["text/html"]
    assert "measured, ridge" not in bundle["text/html"]


def test_no_name_runs_over_the_edge_of_the_still():
    html = attention_roofline(H100, {"a very long name on the far left": 1.0, "b": 4.0}).html
    [(x, anchor)] = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="(\w+)"[^>]*>a very long name', html)
    assert anchor == "start"
    assert float(x) > 70
