"""The throughput–latency curve as a figure and as a still: every point says Little's law with its own numbers."""

from __future__ import annotations

import re

import pytest

from llmlesson.measure.serving import Point, Service
from llmlesson.views.plot import Pictured
from llmlesson.views.serving import Curve, says, serving_figure, serving_text, with_turn


def service(room, prompt=700, cache=1e9):
    return Service(prompt, 100, 1e12, 1e12, 1e10, cache, room, 1e14, 1e12)


KINDS = ("much in", "little in")
MEASURED = (Point(1, 100, 0.02, 1, "memory"), Point(4, 100, 0.03, 4, "memory"))
CURVES = [
    Curve("big", "bf16", {"much in": service(64, 3_000), "little in": service(64)}),
    Curve("big", "fp8", {"much in": service(128, 3_000, 5e8), "little in": service(128, cache=5e8)}, MEASURED),
    Curve("small", "bf16", {"much in": service(3, 3_000), "little in": service(3)}),
]


@pytest.fixture(scope="module")
def pictured():
    return serving_figure(CURVES)


def test_computed_is_hollow_and_dashed_measured_is_filled(pictured):
    assert isinstance(pictured, Pictured)
    *computed, measured = pictured.figure.data
    assert len(computed) == 3
    for trace in computed:
        assert trace.line.dash not in (None, "solid")
        assert all(symbol.endswith("-open") for symbol in trace.marker.symbol)
        assert all(text.startswith("computed, ") for text in trace.hovertext)
    assert measured.line.dash is None
    assert all(text.startswith("measured here") for text in measured.hovertext)


def test_each_point_of_the_figure_is_the_service(pictured):
    for curve, trace in zip(CURVES, pictured.figure.data, strict=False):
        points = with_turn(curve.services["little in"])
        assert list(trace.x) == [point.each for point in points]
        assert list(trace.y) == [point.in_all for point in points]
        assert trace.marker.symbol[-1] == "square-open"  # the wall
        turn = curve.services["little in"].turning_point
        diamonds = [p.users for p, s in zip(points, trace.marker.symbol, strict=True) if s == "diamond-open"]
        assert diamonds == ([turn] if turn else [])


def test_what_a_point_says_is_littles_law():
    text = says(service(64).at(40))
    rate, seconds, users = re.search(r"([\d.]+) requests/s × ([\d.]+) s = (\d+) in flight", text).groups()
    assert float(rate) * float(seconds) == pytest.approx(int(users), rel=0.01)


def test_the_menu_shows_one_place_and_the_slider_changes_all_curves(pictured):
    [menu] = pictured.figure.layout.updatemenus
    assert [button.label for button in menu.buttons] == ["big", "small"]
    assert menu.buttons[1].args[0]["visible"] == [False, False, True, False]
    [slider] = pictured.figure.layout.sliders
    for step, kind in zip(slider.steps, KINDS, strict=True):
        changed, traces = step.args
        assert list(traces) == [0, 1, 2]
        assert list(changed["x"][0]) == [point.each for point in with_turn(CURVES[0].services[kind])]


def test_the_still_has_the_numbers_of_the_place_that_is_shown_first(pictured):
    assert "full with 64 users" in pictured.html
    assert "full with 128 users" in pictured.html
    assert "small" not in pictured.html
    assert pictured.html.count("<tr") == 1 + sum(len(with_turn(c.services["little in"])) for c in CURVES[:2]) + 2
    assert "Filled: measured on this machine" in pictured.html


def test_one_place_and_one_kind_need_neither_menu_nor_slider():
    one = serving_figure([Curve("here", "mine", {"chat": service(4)})])
    assert not one.figure.layout.updatemenus
    assert not one.figure.layout.sliders
    assert "measured" not in one.html


def test_the_text_names_both_ends():
    text = serving_text(CURVES[2:], "little in")
    assert "1 user: " in text
    assert "3 users: " in text
    assert "memory is the limit all along" in text
