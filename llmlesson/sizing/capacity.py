"""The inverse of a size, found by search: how much fits into a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.sizing.models import resolve
from llmlesson.sizing.size import size_of_spec
from llmlesson.sizing.units import MAX_BATCH, MAX_TOKENS, check_tokens


def max_tokens(
    config_or_name: Any,
    budget_nbytes: int,
    batch: int = 1,
    dtype: str = "bf16",
    convention: str = "ideal",
    *,
    tp: int = 1,
    cross_tokens: int | None = None,
) -> int:
    """The most tokens per sequence so that `batch` sequences fit into `budget_nbytes` (on one rank). 0: not even one.

    MAX_TOKENS (10⁹) means "any number": the caches of models with only windows or states stop growing.
    """
    spec = resolve(config_or_name)
    return _most(
        lambda n: size_of_spec(spec, n, batch, dtype, convention, tp=tp, cross_tokens=cross_tokens).nbytes,
        _budget(budget_nbytes),
        MAX_TOKENS,
    )


def max_sequences(
    config_or_name: Any,
    tokens: int,
    budget_nbytes: int,
    dtype: str = "bf16",
    convention: str = "ideal",
    *,
    tp: int = 1,
    cross_tokens: int | None = None,
) -> int:
    """The most sequences of `tokens` tokens that fit into `budget_nbytes` (on one rank). 0: not even one."""
    spec = resolve(config_or_name)
    tokens = check_tokens(tokens)
    return _most(
        lambda n: size_of_spec(spec, tokens, n, dtype, convention, tp=tp, cross_tokens=cross_tokens).nbytes,
        _budget(budget_nbytes),
        MAX_BATCH,
    )


def _budget(nbytes: int) -> int:
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
        raise LessonError(f"A budget must be a whole number of bytes, 0 or more, not {nbytes!r}.")
    return nbytes


def _most(cost: Callable[[int], int], budget: int, limit: int) -> int:
    """The largest n of 1…limit with cost(n) ≤ budget, else 0. `cost` never decreases."""
    if cost(1) > budget:
        return 0
    fits, too_many = 1, limit + 1
    while too_many - fits > 1:
        middle = min(fits * 2, limit) if too_many > limit else (fits + too_many) // 2
        if middle == fits:
            break
        if cost(middle) <= budget:
            fits = middle
        else:
            too_many = middle
    return fits
