"""Steps over the cache's length: measured and computed are told apart, and the still shows the same data."""

from __future__ import annotations

import json
import re

import pytest

from llmlesson.views.step_times import StepTimes, step_times, ticks

HERE = StepTimes("here", [38, 39, 40], [0.031, 0.032, 0.040], measured=True, texts=[" a", "\n", "\u4e2d"])
LIMIT = StepTimes("limit", [38, 40], [0.020, 0.021], measured=False)


def test_measured_steps_are_points_and_computed_ones_a_dashed_line():
    measured, computed = step_times("Steps", [HERE, LIMIT]).figure.data
    assert (measured.mode, computed.mode) == ("markers", "lines")
    assert computed.line.dash != "solid"
    assert list(measured.y) == pytest.approx([31, 32, 40])
    assert measured.text[1] == r"'\n'<br>"
    assert "measured" in measured.hovertemplate
    assert "computed" in computed.hovertemplate


def test_the_still_has_every_step_in_its_place():
    html = step_times("Steps", [HERE, LIMIT]).html
    points = [tuple(map(float, found)) for found in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', html)]
    assert len(points) == 3
    xs, ys = zip(*points, strict=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert (ys[0] - ys[2]) / (ys[0] - ys[1]) == pytest.approx(9, rel=0.1)  # 31, 32, 40 ms
    assert "stroke-dasharray" in html
    assert "40 with 40" in html


def test_only_what_is_there_is_explained():
    for series, said in (([HERE], "Filled"), ([LIMIT], "Dashed"), ([HERE, LIMIT], "Filled Dashed")):
        html = step_times("Steps", series).html
        assert [word for word in ("Filled", "Dashed") if f"{word}: " in html] == said.split()


def test_a_long_answer_stays_small():
    many = range(2_000)
    shown = step_times("Steps", [StepTimes("here", many, [0.03] * 2_000, True, [" token"] * 2_000)])
    assert len(json.dumps(shown._repr_mimebundle_()["application/vnd.plotly.v1+json"])) < 100_000


@pytest.mark.parametrize("most", [0.003, 0.9, 1, 7, 36, 100, 250, 99_999])
def test_ticks_go_from_0_to_the_most_in_few_even_steps(most):
    found = ticks(most)
    assert found[0] == 0
    assert found[-2] < most * (1 + 1e-9) <= found[-1] * (1 + 1e-9)
    assert 3 <= len(found) <= 7
