"""Turns what somebody typed into a number. Every function raises LessonError, which says what to type instead."""

from __future__ import annotations

import math
import re

from llmlesson.errors import LessonError
from llmlesson.sizing.units import MAX_TOKENS, parse_tokens


def whole(text: str, name: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`, such as "12" or "1,000". name: of the field, as messages say it."""
    value = _number(text, name, f"a whole number from {least:,} to {most:,}")
    if not value.is_integer():
        raise LessonError(f"{name} must be a whole number, not {text.strip()}.")
    return int(_within(value, name, least, most))


def decimal(text: str, name: str, least: float, most: float = math.inf) -> float:
    """A number from `least` to `most`, such as "0.7"."""
    return _within(_number(text, name, f"a number such as {least + 0.5:g}"), name, least, most)


def context(text: str, name: str = "context") -> int:
    """A number of tokens, at least 1: "4096", "4,096", "128k" or "128Ki"."""
    if _plain(text):
        _within(_number(text, name, f"a number of tokens up to {MAX_TOKENS:,}"), name, 1, MAX_TOKENS)
    return parse_tokens(text)


def _plain(text: str) -> str:
    """The digits of a number without any unit; empty for anything else."""
    digits = re.sub(r"[\s,_]", "", text).replace("−", "-")
    return digits if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", digits) else ""


def _number(text: str, name: str, wanted: str) -> float:
    digits = _plain(text)
    if not digits or not math.isfinite(float(digits)):
        shown = f"“{text.strip()[:40]}” is not a number" if text.strip() else "The field is empty"
        raise LessonError(f"{shown}: {name} takes {wanted}.")
    return float(digits)


def _within(value: float, name: str, least: float, most: float) -> float:
    if value < least:
        raise LessonError(f"{name} must be at least {least:,}, but it is {value:,g}.".replace("-", "−"))
    if value > most:
        raise LessonError(f"{name} must be at most {most:,}, but it is {value:,.10g}.")
    return value
