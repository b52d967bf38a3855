"""The pictures of tokens, decode steps and caches: well-formed, escaped, bounded, legible in both themes."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from llmlesson.views import cache, decode, tokens
from llmlesson.views.tokens import Chip

NASTY = [
    "<script>alert(1)</script>",
    "a\x00b\x1b[31m",
    "שלום \u202eعالم",
    "x" * 5000,
    "\"&'",
    "\n\n\t",
    "",
    "👩‍👩‍👧",
    "\ud800",
]
WORK = decode.Work("Decode step 1", 1, 42, 10, 430, 1000, 86, 2, 0.0123, None)


class Reader(HTMLParser):
    """Names of elements, and their attributes; fails where tags do not match."""

    def __init__(self, html):
        super().__init__()
        self.open, self.names, self.text = [], set(), ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.names.add(tag)

    def handle_endtag(self, tag):
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def pictures(text):
    """Everything that shows a text, with this one."""
    raw = text.encode("utf-8", "surrogatepass")
    row = decode.BranchRow(text, 1, text, text, 3, True)
    return [
        tokens.chips([Chip(1, raw), Chip(2, raw, special=True), Chip(3, raw, fresh=True, starts_piece=True)], text),
        tokens.counts({text or "-": (text, 3)}),
        decode.answer(text, text, text, text or "ended"),
        decode.candidates([decode.Candidate(1, text, 0.6, 1.0, True), decode.Candidate(2, text, 0.4, 0, False)], text),
        decode.work(WORK._replace(name=text, least_seconds=0.001)),
        decode.cache_columns([text] * 3, 3, 2, 1, text, 8),
        decode.branches([row, row._replace(forked_at=None, current=False)]),
        cache.heatmap([[0.5, -1.0]] * 2, 0, [text] * 2, [1], text),
        cache.numbers([0.5, -1.0], text),
        cache.sizes(text, 8, 8, [(4, 4), (4, 4)]),
        cache.change(text, 2, 3, 8, True),
        cache.head_map([[0.5], [1.0]], (0, 0), text),
    ]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_any_text_is_shown_and_none_becomes_markup(text):
    plain = [Reader(html).names for html in pictures("a")]
    for html, names in zip(pictures(text), plain, strict=True):
        assert Reader(html).names <= names, "no element that harmless text doesn't bring"
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", html)


def test_a_long_token_does_not_widen_its_cell():
    assert "x" * 20 not in Reader(tokens.chips([Chip(1, b"x" * 5000)], "")).text
    assert "x" * 20 not in Reader(decode.cache_columns(["x" * 5000], 1, 1, 1, "x" * 5000, 8)).text
    for style in re.findall(r'role="region"[^>]*style="([^"]*)"', decode.answer("x" * 5000, "", "x" * 5000)):
        assert "overflow-wrap:anywhere" in style
        assert "overflow:auto" in style


def test_a_chip_says_number_text_id_and_bytes():
    text = Reader(tokens.chips([Chip(7, b"a"), Chip(504, " thé".encode())], "")).text
    for part in ("0", "a", "id 7", "61", "1", "·thé", "id 504", "20 74 68 C3 … (5)", "20 74 68 C3 A9"):
        assert part in text


def test_special_new_and_partial_tokens_are_told_by_signs_not_colours_alone():
    text = Reader(
        tokens.chips([Chip(1, b"<s>", special=True), Chip(2, b"b", fresh=True), Chip(3, b"\xe2\x82")], "")
    ).text
    assert "◆ special" in text
    assert "★ new" in text
    assert "⟨E2·82⟩" in text


def test_counts_are_characters_bytes_tokens():
    text = Reader(tokens.counts({"A": ("a€", 2), "B": ("", 0)})).text
    assert text == "ABcharacters20bytes (UTF-8)40tokens20bytes a token2.00–"


def test_only_so_many_chips_and_columns_are_drawn_and_the_rest_is_named():
    many = tokens.chips([Chip(1, b"a")] * (tokens.MOST_CHIPS + 30), "")
    assert many.count('role="listitem"') == tokens.MOST_CHIPS
    assert "… and 30 more tokens" in many
    columns = decode.cache_columns(["a"] * decode.MOST_COLUMNS, 1000, 10, 1, "b", 8)
    assert columns.count('class="f-key"') == columns.count('class="f-value"') == decode.MOST_COLUMNS
    assert f"The first {1000 - decode.MOST_COLUMNS} positions are not drawn" in columns
    assert "position 999: a" in columns
    assert "1,000 positions × 8 bytes = 8,000 bytes" in columns


def letters(html):
    return re.findall(r"<text[^>]*>([^<]*)</text>", html)


def test_columns_show_their_tokens_and_the_new_one_is_framed():
    columns = decode.cache_columns(["Why", " is", "The", " sky"], 4, 2, 1, " blue", 8)
    assert letters(columns) == ["Why", "0", "·is", "The", "·sky", "·blue", "prompt", "answer"]
    [frame] = re.findall(r'<rect x="(\d+)"[^>]*width="(\d+)"[^>]*class="s-answer"', columns)
    assert frame == (str(3 * decode.COLUMN), str(decode.COLUMN))
    assert "2 of the prompt and 2 of the answer; the last 1 came with this step" in columns
    assert "waiting: ·blue, not yet in the cache" in columns


def test_where_there_is_no_next_step_nothing_waits():
    ended = decode.cache_columns(["p", "a"], 2, 1, 1, None, 8)
    assert "waiting" not in ended
    assert "next step" not in ended
    assert "s-wait" not in ended.split("</style>")[1]
    assert "come with the next step" in decode.answer("p", "", "a")
    assert "next step" not in decode.answer("p", "", "a", "the model gave its end-of-sequence token")


def test_candidates_bars_are_as_long_as_the_share():
    rows = [decode.Candidate(1, "a", 0.5, 1.0, True), decode.Candidate(2, "b", 0.0004, 0.0, False)]
    html = decode.candidates(rows, "temperature 0")
    widths = [int(w) for w in re.findall(r"width:(\d+)px;height", html)]
    assert widths == [decode.BAR // 2, decode.BAR, 0]
    text = Reader(html).text
    assert "▶ taken" in text
    assert "50.0 %" in text
    assert "<0.1 %" in text
    assert "ruled out" in text


def test_work_says_what_was_computed_and_what_reused():
    text = Reader(decode.work(WORK)).text
    assert "positions computed143" in text
    assert "positions reused from the cache420" in text
    assert "FLOPs, counted10430" in text
    assert "12.3 ms" in text
    assert "roofline" not in text
    assert "6.2 ms (50% of the time)" in Reader(decode.work(WORK._replace(least_seconds=0.00615))).text


def test_a_single_branch_is_no_table_and_several_show_where_they_part():
    row = decode.BranchRow("A", None, "", "one two", 2, False)
    assert decode.branches([row]) == ""
    text = Reader(decode.branches([row, decode.BranchRow("B", 1, "one", " four", 2, True)])).text
    assert "▶ B2one┊ four" in text


def cells(html):
    """(column, row, number, opacity, height) of each cell of a heatmap."""
    found = []
    for group in re.findall(r'<g class="s-key"[^>]*stroke-width="(\d+)"[^>]*>(.*?)</g>', html):
        for x, y, opacity, number in re.findall(
            r"<path d='M(\d+) (\d+)h\d+' opacity='([\d.e-]+)'><title>([^<]*)</title>", group[1]
        ):
            column, row = (int(x) - cache.LEFT) // cache.COLUMN, (int(y) - cache.HEAD) // cache.ROW
            found.append((column, row, number, float(opacity), int(group[0])))
    return sorted(found)


def test_a_heatmap_has_a_column_for_each_position_and_a_thin_cell_for_what_is_negative():
    html = cache.heatmap([[0.25, -0.5], [1e-5, 0.0]], 7, ["a", "b"], [8], "K")
    full = cache.ROW - 1
    assert [(c, r, n, h) for c, r, n, _, h in cells(html)] == [
        (0, 0, "0.25", full),
        (0, 1, "-0.5", cache.NEGATIVE),
        (1, 0, "1e-05", full),
        (1, 1, "0", full),
    ]
    [frame] = re.findall(r'<rect x="(\d+)"[^>]*class="s-answer"', html)
    assert int(frame) == cache.LEFT + cache.COLUMN
    Reader(cache.heatmap([[0.0, 0.0]], 0, ["a"], [], "all zero"))
    assert "s-value" in cache.heatmap([[0.5]], 0, ["a"], [], "V", "V").split("</style>")[1]


def test_with_a_scale_a_value_looks_the_same_whatever_stands_beside_it():
    alone = cells(cache.heatmap([[0.25]], 0, ["a"], [], "K", scale=1.0))
    beside = cells(cache.heatmap([[0.25], [9.0]], 0, ["a", "b"], [], "K", scale=1.0))
    assert alone == beside[:1] == [(0, 0, "0.25", 0.5, cache.ROW - 1)]
    assert beside[1][3] == 1.0


def test_a_full_heatmap_is_light():
    columns = cache.columns_that_fit(64)
    assert columns * 64 <= cache.MOST_CELLS
    assert len(cache.heatmap([[-0.12345] * 64] * columns, 0, ["token"] * columns, [], "K")) < 150_000


def test_a_size_that_differs_is_marked():
    assert "✗ not equal" in cache.sizes("", 8, 9, [(4, 4)])
    assert "✗" not in cache.sizes("", 8, 8, [(4, 4)])
    assert "changed ✗" in cache.change("Step", 2, 3, 8, False)
    assert "1 position dropped, 8 bytes" in cache.change("Back", 3, 2, -8, True)
