"""Stop strings on their own: what is shown, what is held back, and where a text ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmlesson import LessonError
from llmlesson.engine.stopping import StopStrings


def pushes(stop, *pieces):
    """What each push gives, and what a flush gives at the end."""
    scanner = StopStrings(stop)
    return [*(scanner.push(piece) for piece in pieces), scanner.flush()]


def test_only_what_could_begin_a_stop_string_is_held_back():
    assert pushes("END", "one E", "N", "x") == [("one ", False), ("", False), ("ENx", False), ""]
    assert pushes("END", "one EN") == [("one ", False), "EN"]  # flushed, now that no more comes
    assert pushes("END", "E", "E", "ND!") == [("", False), ("E", False), ("", True), ""]
    assert pushes("aab", "aa", "a") == [("", False), ("a", False), "aa"]  # the longest end that begins it
    assert pushes("ab", "xa") == [("x", False), "a"]
    assert pushes("a", "xa") == [("x", True), ""]
    assert pushes("aba", "xaba") == [("x", True), ""]


def test_longest_of_several_beginnings_is_held_back():
    assert pushes(["cd", "bcde"], "abc") == [("a", False), "bc"]
    assert pushes(["bcde", "cd"], "abc") == [("a", False), "bc"]


def test_first_of_several_stop_strings_ends_the_text():
    assert pushes(["two", "one"], "a one and two") == [("a ", True), ""]
    assert pushes(["one", "two"], "a one and two") == [("a ", True), ""]


def test_after_a_stop_string_nothing_is_left():
    scanner = StopStrings("|")
    assert scanner.push("a|b") == ("a", True)
    assert scanner.flush() == ""


@pytest.mark.parametrize("stop", [None, [], ()])
def test_without_stop_strings_all_text_passes_at_once(stop):
    assert pushes(stop, "any", "thing") == [("any", False), ("thing", False), ""]


@pytest.mark.parametrize("stop", ["", ["a", ""], [3], [None]])
def test_empty_stop_string_or_none_at_all_is_refused(stop):
    with pytest.raises(LessonError, match="stop string"):
        StopStrings(stop)


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_cutting_the_text_into_pieces_changes_nothing(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    scanner, shown, met = StopStrings(stops), "", False
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        piece, met = scanner.push(text[start:end])
        shown += piece
        if met:
            break
    # As a character at a time: the stop string that is complete first, of several the longest.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert met == bool(ends)
    assert shown + scanner.flush() == (text[: min(ends)[1]] if ends else text)


def test_a_copy_goes_on_by_itself():
    scanner = StopStrings("END")
    assert scanner.push("an E") == ("an ", False)
    copy = scanner.copy()
    assert copy.push("ND") == ("", True)
    assert scanner.push("x") == ("Ex", False)


@pytest.mark.parametrize("stop", [torch.zeros(2), torch.tensor(1), 0, False, [""], [1], np.ones(3)], ids=repr)
def test_what_is_no_stop_string_is_refused(stop):
    with pytest.raises(LessonError, match="A stop string must be"):
        StopStrings(stop)
    assert StopStrings(None).push("a") == StopStrings([]).push("a") == ("a", False)
