"""The picture of what the cache saves: cells are the counted positions."""

import re

import pytest

from llmlesson.views.cache_work import work_left


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


def test_the_legend_is_inside_the_picture():
    picture = work_left(6, 6)
    width = int(re.search(r'viewBox="0 0 (\d+) ', picture)[1])
    texts = re.findall(r'<text x="([\d.]+)"[^>]*font-size="12" text-anchor="start"[^>]*>([^<]+)', picture)
    assert max(float(x) + 7 * len(text) for x, text in texts) <= width  # 7 pixels a letter, at most
