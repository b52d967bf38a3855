"""The pictures of lesson 04: numbers in their place, described in words, with a table."""

import re

import pytest

from llmlesson.views.cache_work import token_times, work_left


def test_times_stand_in_the_picture_and_in_the_table():
    html = token_times({"without": [0.30, 0.31, 0.32], "with": [0.30, 0.05, 0.052]})
    assert "without: first 300, last 320; with: first 300, last 52" in html
    assert html.count('stroke-width="2"') == 2
    assert re.findall(r"<td[^>]*><bdi>(\d+)</bdi></td>", html) == ["300", "300", "310", "50", "320", "52"]


def test_the_higher_time_is_the_higher_point():
    html = token_times({"a": [1.0, 0.5]})
    ((_, first), (_, last)) = re.findall(r"(?:d=\"M|L)(\d+\.\d) (\d+\.\d)", re.search(r'd="M[^"]*L[^"]*"', html)[0])
    assert float(first) < float(last)  # y grows downwards


def test_ways_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\]"):
        token_times({"a": [1, 2], "b": [1, 2, 3]})


@pytest.mark.parametrize("seconds", [1e-4, 0.02, 3.0, 400.0])
def test_few_ticks_whatever_the_times(seconds):
    html = token_times({"a": [seconds, seconds / 2]})
    assert 1 <= html.count('stroke-opacity=".2"') <= 7


@pytest.mark.parametrize(("prompt", "new"), [(6, 6), (3, 1), (1, 4)])
def test_cells_are_the_counted_positions(prompt, new):
    picture = work_left(prompt, new)
    together, alone, keys, values = (
        picture.count(f'class="f-{name}"') - 1  # one is the legend's
        for name in ("prompt", "answer", "key", "value")
    )
    without = sum(prompt + i for i in range(new))
    assert (together, alone) == (without + prompt, new - 1)
    assert keys == values == sum(prompt + i - 1 for i in range(1, new))
    assert f"Without the cache {without} positions" in picture
