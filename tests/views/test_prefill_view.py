"""The pictures of prefill: what is filled, who looks at whom, what may come next."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from views.test_markup import NASTY

from llmlesson.views.decode import BAR, Candidate
from llmlesson.views.prefill import (
    LEFT,
    SHADES,
    WINDOW,
    Columns,
    Comparison,
    attention_map,
    cache_grid,
    comparison_table,
    next_tokens,
)

TEXTS = ["<s>", "Why", " is", " it", "?"]
PASSES = [(0, 2), (2, 3)]


def svg_of(html):
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def titles(html):
    return [element.text for element in svg_of(html).iter() if element.tag.endswith("title")]


def texts(html):
    return [element.text for element in svg_of(html).iter() if element.tag.endswith("text")]


def grid(read=3, first=0, shown=TEXTS, layers=2, passes=PASSES, layer=1):
    columns = Columns(first, shown, read)
    lengths = [[0.1 + 0.8 * row] * columns.filled for row in range(layers)]
    return cache_grid(columns, lengths, lengths, passes, layer, 46_080)


def paths(html, name):
    """(number of cells, opacity) of each path of one colour."""
    return [
        (element.get("d").count("M"), float(element.get("opacity", "1")))
        for element in svg_of(html).iter()
        if element.tag.endswith("path") and element.get("class") == f"s-{name}"
    ]


def test_as_many_cells_are_filled_as_positions_read_and_the_others_are_frames():
    html = grid(read=3)
    for name in ("key", "value"):
        assert sum(cells for cells, _ in paths(html, name)) == 3 * 2
    assert [cells for cells, _ in paths(html, "wait")] == [2 * 2]
    assert paths(grid(read=5), "wait") == []
    assert paths(grid(read=0, passes=[]), "key") == []


def test_longer_vectors_are_stronger_in_colour():
    assert sorted(paths(grid(read=3), "key")) == [(3, SHADES[0]), (3, SHADES[-1])]
    assert SHADES[0] > 0.5, "that it is filled is the point, not its length"


def test_each_pass_is_numbered_and_the_last_framed():
    html = grid()
    assert [text for text in texts(html) if text.isdigit()] == ["1", "2"]
    frames = [e for e in svg_of(html).iter() if e.tag.endswith("rect") and e.get("class") == "s-prompt"]
    assert [(float(f.get("x")), float(f.get("width"))) for f in frames] == [(LEFT + 2 * 22, 22)]


def test_the_chosen_layer_is_marked_with_an_arrow_and_hover_tells_each_column():
    html = grid()
    assert "▶ layer 1" in texts(html)
    assert "layer 0" in texts(html)
    assert titles(html)[1] == "position 1 Why: K and V in 2 layers, 46,080 bytes"
    assert titles(html)[4].endswith("not read yet")


def test_a_window_into_a_long_prompt_counts_from_its_first_column():
    html = grid(read=102, first=100, passes=[(0, 64), (64, 102)])
    assert sum(cells for cells, _ in paths(html, "key")) == 2 * 2
    assert [text for text in texts(html) if text.isdigit()] == ["2"], "the first pass lies to the left"
    assert titles(html)[0].startswith("position 100 ")
    assert "Shown are positions 100 to 104, of which 2 are filled." in svg_of(html).get("aria-label")


WEIGHTS = [[1.0], [0.75, 0.25], [0.5, 0.3, 0.2]]


def test_the_heatmap_is_a_triangle_with_every_weight_on_hover():
    html = attention_map(Columns(0, TEXTS, 3), WEIGHTS, 4, 5, 1)
    assert "Attention, layer 4, head 5 (it reads KV head 1)" in html
    assert [title.rpartition(": ")[2] for title in titles(html)] == [f"{w:.3f}" for row in WEIGHTS for w in row]
    assert titles(html)[1] == "1 Why → 0 <s>: 0.750"
    opacities = [float(e.get("opacity")) for e in svg_of(html).iter() if e.get("opacity")]
    assert opacities == pytest.approx([w**0.5 for row in WEIGHTS for w in row], abs=0.005)
    assert "·it" not in texts(html), "not read yet"


def test_positions_before_the_window_stand_together():
    weights = [[0.5, 0.25, 0.25], [0.4, 0.1, 0.2, 0.3]]
    html = attention_map(Columns(2, TEXTS[2:], 4), weights, 0, 0, 0)
    assert titles(html)[0] == "2 ·is → positions 0–1 together: 0.750"
    assert titles(html)[2].endswith("positions 0–1 together: 0.500")
    assert len(titles(html)) == 2 + 3
    assert "0–1" in texts(html)


def test_the_strongest_weights_stand_in_a_table_too():
    html = attention_map(Columns(0, TEXTS, 3), WEIGHTS, 0, 0, 0)
    last = html[html.rindex("<tr") :]
    assert last.index(": 0.500") < last.index(": 0.300") < last.index(": 0.200")


def test_before_anything_is_read_the_heatmap_says_so():
    assert "no position in this window is read" in attention_map(Columns(0, TEXTS, 0), [], 0, 0, 0)


def test_bars_are_as_long_as_their_probability():
    html = next_tokens([Candidate(504, "The", 0.8857), Candidate(18, '"', 0.004)], 35, "\n", whole=True)
    assert re.findall(r"width:(\d+)px;height", html) == [str(round(0.8857 * BAR)), "0"]
    assert "88.6 %" in html
    assert "first token of the answer" in html
    assert "nobody looks at these" in next_tokens([], 3, "a", whole=False)


def test_the_comparison_is_a_number():
    comparison = Comparison(256, 4, 3.2e-05, 25.35, 6.6e-07, True)
    html = comparison_table(comparison)
    for text in ("256", "4 instead of 1", "3.2e-05", "25.35", "6.6e-07", "yes"):
        assert f"<bdi>{text}</bdi>" in html
    assert comparison.in_words == "largest difference in K and V 3.2e-05 (values up to 25.4), the same next token"
    assert "another next token" in Comparison(1, 2, 1, 1, 1, False).in_words


@pytest.mark.parametrize("text", NASTY)
def test_any_text_is_shown_and_none_is_markup(text):
    shown = [text] * 3
    for html in (
        grid(shown=shown),
        attention_map(Columns(0, shown, 3), WEIGHTS, 0, 0, 0),
        next_tokens([Candidate(1, text, 0.5)], 0, text, True),
    ):
        if "<svg" in html:
            svg_of(html)
        assert "<script" not in html
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", html)
        assert len(html) < 12_000


def test_the_largest_pictures_stay_small():
    """Each is sent twice, live and for pages without a kernel, and both pictures together have 0.5 MB."""
    weights = [[0.123456] * (i + 1) for i in range(WINDOW)]
    for text, layers, most in [(" helpful", 30, 160_000), ('"' * 30, 80, 350_000)]:
        shown = [text] * WINDOW
        size = len(attention_map(Columns(0, shown, WINDOW), weights, 0, 0, 0).encode())
        size += len(grid(read=WINDOW, shown=shown, layers=layers, passes=[(0, WINDOW)]).encode())
        assert size < most


def test_both_themes_can_read_it():
    for html in (grid(), attention_map(Columns(0, TEXTS, 3), WEIGHTS, 0, 0, 0)):
        assert {e.get("fill") for e in svg_of(html).iter() if e.tag.endswith("text")} == {"currentColor"}
        assert not re.search(r"#fff\b|#ffffff|#000\b|#000000|white[^-]|black", html.split("</style>")[1])
