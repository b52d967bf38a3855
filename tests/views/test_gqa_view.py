"""Query heads and the KV heads they read: drawn, marked where wrong, and costed."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from llmlesson.views.gqa import Reading, Sharing, heads_picture, order_note, readings_table, sharing_table

HEADS, KV_HEADS = 6, 2
RIGHT = [Reading(head, head // 3, head // 3) for head in range(HEADS)]
TILED = [Reading(head, head % 2, head // 3) for head in range(HEADS)]  # heads 1, 3 … read the wrong one
WRONG = [1, 4]


def svg_of(html):
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def lines(svg):
    """(where it starts, where it ends, whether it is dashed) of the line of each query head."""
    found = []
    for element in svg.iter():
        match = re.fullmatch(r"M([\d.]+) \d+ L([\d.]+) \d+", element.get("d", ""))
        if match:
            found.append((float(match[1]), float(match[2]), element.get("stroke-dasharray") is not None))
    return found


def test_every_query_head_has_a_line_to_the_kv_head_that_it_reads():
    for readings in (RIGHT, TILED):
        drawn = lines(svg_of(heads_picture(readings, KV_HEADS)))
        assert len(drawn) == HEADS
        ends = sorted({end for _, end, _ in drawn})
        assert len(ends) == KV_HEADS
        assert [ends.index(end) for _, end, _ in sorted(drawn)] == [r.reads for r in readings]


def test_wrong_heads_are_dashed_and_say_which_would_be_right():
    svg = svg_of(heads_picture(TILED, KV_HEADS))
    assert [head for head, (_, _, dashed) in enumerate(sorted(lines(svg))) if dashed] == WRONG
    texts = [element.text for element in svg.iter() if element.tag.endswith("text")]
    assert [text for text in texts if "✗" in text] == ["✗→0", "✗→1"]
    assert "2 query heads read the wrong one: 1, 4." in svg.get("aria-label")
    titles = [element.text for element in svg.iter() if element.tag.endswith("title")]
    assert titles[1] == "query head 1 reads KV head 1, and its weights were trained with KV head 0"


def test_nothing_is_marked_where_nothing_is_wrong():
    html = heads_picture(RIGHT, KV_HEADS) + readings_table(RIGHT) + order_note(RIGHT, KV_HEADS, "interleave")
    assert "✗" not in html
    assert not any(dashed for _, _, dashed in lines(svg_of(html)))
    assert "s-broken" not in html.split("</style>")[1]
    assert "wrong" not in html


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_what_a_token_keeps_is_as_wide_as_the_number_of_kv_heads(kv_heads):
    readings = [Reading(head, head // (HEADS // kv_heads), head // (HEADS // kv_heads)) for head in range(HEADS)]
    svg = svg_of(heads_picture(readings, kv_heads))
    keys = [e for e in svg.iter() if e.get("class") == "f-key"]
    empty = [e for e in svg.iter() if e.tag.endswith("rect") and e.get("class") == "s-wait"]
    assert len(keys) == 2 * kv_heads  # once where they are read, once in the row of the cost
    assert len(empty) == HEADS - kv_heads


def test_the_table_says_the_same_as_the_picture():
    html = readings_table(TILED)
    assert html.count("✗ wrong") == 2
    assert html.count("✓ right") == 4


def test_the_note_counts_what_is_wrong_or_says_that_nothing_shows():
    assert "2 of 6 query heads" in order_note(TILED, KV_HEADS, "tile")
    same = [Reading(head, 0, 0) for head in range(3)]
    assert "nothing shows the mistake" in order_note(same, 1, "tile")


def test_costs_stand_in_exact_bytes_and_the_chosen_row_is_marked():
    sharings = [Sharing(2, 3, "GQA", 1000, 46_080, True), Sharing(6, 1, "MHA", 3000, 138_240, False)]
    html = sharing_table(sharings, 6, 46)
    for text in ("2 (GQA, the model’s own)", "▶ 6 (MHA)", "46,080", "138,240", "46.08 KB = 45.00 KiB", "3 query heads"):
        assert text in html
    assert "cache of 46 tokens" in html


@pytest.mark.parametrize("heads", [1, 128])
def test_one_head_and_very_many(heads):
    svg = svg_of(heads_picture([Reading(head, 0, 0) for head in range(heads)], 1))
    assert len(lines(svg)) == heads
