"""The pieces that pictures are made of: well-formed, escaped, and to be read in both themes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from llmlesson.views import markup

NASTY = [
    "<script>alert(1)</script>",
    "a\x00b\x1b[31m",
    "שלום עולם",
    "x" * 5000,
    "\"&'",
    "\n\n",
    "",
    "👩‍👩‍👧",
    "\u202e\ud800",
]


@pytest.mark.parametrize("text", NASTY)
def test_any_text_is_shown_and_none_is_markup(text):
    html = "".join(
        (
            markup.svg(100, 50, text, [markup.label(1, 2, text, turn=-60, bold=True, mono=True)]),
            markup.table(("", text), [(text, text)], caption=text),
            markup.folded(text, markup.note(text)),
            markup.title(text),
            markup.announced(text),
            markup.note(markup.quoted(text)),
        )
    )
    tree = ElementTree.fromstring(f"<div>{html.encode('utf-8').decode()}</div>")
    assert "<script" not in html
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", html)
    assert any(element.text == text for element in tree.iter()) or text != "שלום עולם"


def test_a_quoted_token_keeps_its_direction_to_itself_and_is_cut():
    assert markup.quoted(" ש\n") == "“\u2068·ש↵\u2069”"
    assert markup.quoted("sky") == "“sky”"
    assert markup.quoted("x" * 5000) == f"“{'x' * 15}…”"


def test_a_table_has_headings_for_rows_and_columns_and_one_bold_row():
    html = markup.table(("", "a", "b"), [("one", 1, 2), ("two", 3, 4)], bold=1)
    assert html.count('scope="col"') == 3
    assert html.count('scope="row"') == 2
    assert [row.split(">")[0] for row in html.split("<tr")[2:]] == [
        ' style="font-weight:400"',
        ' style="font-weight:600"',
    ]


def test_a_status_is_announced():
    assert re.search(r'<p role="status" aria-live="polite"[^>]*><bdi>done</bdi></p>', markup.announced("done"))
