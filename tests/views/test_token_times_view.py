"""The time of each token: the same numbers in the figure, in the still, in words and in a table."""

import re

import pytest

from llmlesson.views.plot import colour
from llmlesson.views.token_times import token_times

TWO = {"without": [0.30, 0.31, 0.32], "with": [0.30, 0.05, 0.052]}


def test_the_figure_has_the_measured_milliseconds():
    figure = token_times(TWO, again=["without"]).figure
    assert [list(line.y) for line in figure.data] == [pytest.approx([300, 310, 320]), pytest.approx([300, 50, 52])]
    assert [list(line.x) for line in figure.data] == [[1, 2, 3]] * 2
    assert {note.text: note.y for note in figure.layout.annotations} == pytest.approx({"without": 320, "with": 52})
    assert figure.layout.yaxis.range[0] == 0
    assert figure.layout.yaxis.title.text == "milliseconds"


def test_reading_again_has_the_colour_of_a_prefill_and_lines_differ_without_colour():
    one, other = token_times(TWO, again=["without"]).figure.data
    assert (one.line.color, other.line.color) == (colour("prompt"), colour("answer"))
    one, other = token_times(TWO).figure.data
    assert one.line.color == other.line.color == colour("answer")
    assert one.line.dash != other.line.dash
    assert one.marker.symbol != other.marker.symbol


def test_times_stand_in_the_still_and_in_its_table():
    html = token_times(TWO).html
    assert "without: first 300, the others 315 in the middle, last 320; with: first 300" in html
    assert html.count('stroke-width="2"') == 2
    assert re.findall(r"<td[^>]*><bdi>(\d+)</bdi></td>", html) == ["300", "300", "310", "50", "320", "52"]


def test_the_higher_time_is_the_higher_point():
    html = token_times({"a": [1.0, 0.5]}).html
    ((_, first), (_, last)) = re.findall(r"(?:d=\"M|L)(\d+\.\d) (\d+\.\d)", re.search(r'd="M[^"]*L[^"]*"', html)[0])
    assert float(first) < float(last)  # y grows downwards


def test_names_of_lines_that_end_together_are_apart():
    shown = token_times({"yours": [0.30, 0.050], "the engine's": [0.30, 0.0501]})
    places = [float(y) for y in re.findall(r'y="([\d.]+)" font-size="12"[^>]*font-weight:600', shown.html)[1:]]
    assert abs(places[0] - places[1]) >= 14.9
    high, low = (note.y * 312 / 324 + note.yshift for note in shown.figure.layout.annotations)
    assert high - low == pytest.approx(15)


def test_ways_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        token_times({"a": [1, 2], "b": [1, 2, 3]})


@pytest.mark.parametrize("seconds", [1e-4, 0.02, 3.0, 400.0])
def test_few_ticks_whatever_the_times(seconds):
    html = token_times({"a": [seconds, seconds / 2]}).html
    assert 1 <= html.count('stroke-opacity=".2"') <= 7
