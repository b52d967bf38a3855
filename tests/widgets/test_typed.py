"""What is typed into fields: numbers as people write them, and a message for everything else."""

from __future__ import annotations

import pytest

from llmlesson.errors import LessonError
from llmlesson.widgets import typed


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), (" 1,000 ", 1000), ("3.0", 3), ("1e2", 100), ("-1", -1), ("−1", -1)]
)
def test_whole_numbers(text, value):
    assert typed.whole(text, "n", -1, 1000) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2.5", "n must be a whole number, not 2.5."),
        ("0", "n must be at least 1, but it is 0."),
        ("-3", "n must be at least 1, but it is −3."),
        ("1,001", "n must be at most 1,000, but it is 1,001."),
        ("", "The field is empty: n takes a whole number from 1 to 1,000."),
        ("two", "“two” is not a number: n takes a whole number from 1 to 1,000."),
        ("nan", "“nan” is not a number: n takes a whole number from 1 to 1,000."),
    ],
)
def test_every_other_number_is_named(text, says):
    with pytest.raises(LessonError) as error:
        typed.whole(text, "n", 1, 1000)
    assert str(error.value) == says


@pytest.mark.parametrize("text", ["9" * 5000, "1e999", "<b>", "1 2 x", "٣x", "--1"])
def test_nothing_typed_is_more_than_a_message(text):
    for read in (
        lambda: typed.whole(text, "n", 0, 10),
        lambda: typed.decimal(text, "n", 0),
        lambda: typed.context(text),
    ):
        with pytest.raises(LessonError):
            read()


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("4,096", 4096), ("128k", 128_000), ("8Ki", 8192), ("1.5k", 1500)]
)
def test_contexts_have_units(text, tokens):
    assert typed.context(text) == tokens


@pytest.mark.parametrize(
    ("text", "says"), [("0", "at least 1, but it is 0"), ("-3", "at least 1, but it is −3"), ("2.5", "whole")]
)
def test_contexts_that_cannot_be(text, says):
    with pytest.raises(LessonError, match=says):
        typed.context(text)


def test_decimals():
    assert typed.decimal("0.7", "temperature", 0) == 0.7
    assert typed.decimal(".5", "top-p", 0, 1) == 0.5
    with pytest.raises(LessonError, match=r"top-p must be at most 1, but it is 1\.1"):
        typed.decimal("1.1", "top-p", 0, 1)
