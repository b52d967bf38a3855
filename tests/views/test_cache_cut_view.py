"""The picture of what a cache may be cut by: as many cells as there are positions, in words, too."""

import re

import pytest

from llmlesson.views.cache_cut import cache_cut


def test_cells_are_the_positions():
    picture = cache_cut(kept=8, new=2, cut=3)
    halves = [picture.count(f'class="f-{name}"') for name in ("key", "value")]
    assert halves == [8 + 2 + 5 + 5] * 2
    assert picture.count('stroke-dasharray="1.5 3"') == 3 + 3
    assert picture.count('stroke-dasharray="4 3"') == 5
    assert "Cut at the front by 3, the 5 that are left are wrong" in picture


def test_texts_are_inside_the_picture():
    picture = cache_cut(kept=8, new=2, cut=3)
    width = int(re.search(r'viewBox="0 0 (\d+) ', picture)[1])
    texts = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="start"[^>]*>([^<]+)', picture)
    assert len(texts) == 4
    assert max(float(x) + 7 * len(text) for x, text in texts) <= width  # 7 pixels a letter, at most


@pytest.mark.parametrize("sizes", [(8, 2, 8), (8, 0, 3), (8, 2, 0)])
def test_what_makes_no_picture_is_refused(sizes):
    with pytest.raises(ValueError, match="makes no picture"):
        cache_cut(*sizes)
