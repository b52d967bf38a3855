"""Numbers as people write them: 128k tokens, 80 GiB."""

from __future__ import annotations

import re

from llmlesson.errors import LessonError, whole_number

MAX_TOKENS = 10**9
MAX_BATCH = 10**6
SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "ki": 2**10, "mi": 2**20}
SUFFIX_HELP = "k and M are decimal (128k = 128,000 and 1M = 1,000,000); Ki and Mi are binary (128Ki = 131,072)"


def parse_tokens(text: str) -> int:
    """The number of tokens that "4096", "4,096", "128k", "128Ki" or "1M" means. Anything else: LessonError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().replace(",", "").replace("_", "").lower())
    factor = SUFFIXES.get(match[2]) if match else None
    if match is None or factor is None:
        raise LessonError(f"{text!r} is not a number of tokens: write 4096, 128k or 128Ki. {SUFFIX_HELP}.")
    whole, _, decimals = match[1].partition(".")
    scaled = int(whole + decimals) * factor
    if scaled % 10 ** len(decimals):
        raise LessonError(f"{text!r} is not a whole number of tokens.")
    return check_tokens(scaled // 10 ** len(decimals))


def check_tokens(tokens: object, name: str = "tokens", most: int = MAX_TOKENS) -> int:
    """`tokens` as an int of at least 1. LessonError if it is zero, negative, absurdly large or not whole."""
    return whole_number(tokens, name, 1, most)


def both_units(nbytes: float) -> str:
    """Bytes in decimal and binary units: "8.59 GB = 8.00 GiB". Below a million, in KB and KiB."""
    for decimal, binary, power in (("TB", "TiB", 4), ("GB", "GiB", 3), ("MB", "MiB", 2), ("KB", "KiB", 1)):
        if abs(nbytes) >= 1000**power or power == 1:
            return f"{_number(nbytes / 1000**power)} {decimal} = {_number(nbytes / 1024**power)} {binary}"
    raise AssertionError("unreachable")


def gigabytes(nbytes: float) -> str:
    """Bytes in GB (10⁹) and GiB (2³⁰), however few or many."""
    return f"{_number(nbytes / 10**9)} GB (10⁹) = {_number(nbytes / 2**30)} GiB (2³⁰)"


def _number(value: float) -> str:
    """Two decimals from 1 on, three significant digits below."""
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"
