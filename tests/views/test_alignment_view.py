"""The levels of a text stand above each other, each part as wide as its bytes."""

import re

import pytest

from llmlesson.views.alignment import alignment


def test_each_part_is_as_wide_as_its_bytes():
    html = alignment({"characters": [("a", 1), ("é", 2)], "bytes": [("61", 1), ("C3", 1), ("A9", 1)]})
    assert re.findall(r'colspan="(\d)"', html) == ["1", "2", "1", "1", "1"]
    assert re.findall(r"<th[^>]*>(.*?)</th>", html) == ["characters", "bytes"]


def test_any_text_is_shown_as_it_is():
    html = alignment({"<b>": [("<i>&\x00", 3)]})
    assert "<b>" not in html
    assert "<i>" not in html
    assert "&lt;i&gt;&amp;\N{REPLACEMENT CHARACTER}" in html


def test_rows_that_do_not_cover_the_same_are_refused():
    with pytest.raises(ValueError, match=r"different numbers of bytes: \{'a': 1, 'b': 2\}"):
        alignment({"a": [("x", 1)], "b": [("y", 2)]})
