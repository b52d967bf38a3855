"""A learner's cache of one layer: made, tried with one operation after another, and what should come of that."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmlesson.lessons.compare import difference, type_in_words
from llmlesson.lessons.exercise import Function, NotAsAsked, NotDone, does_nothing

SECOND = "a second cache"  # an operation: another is made beside the one that is looked at
COPIED = (
    "The values are right, but what is in the cache was copied for new tokens. Take the memory once, in __init__, "
    "write into it, and return slices: a slice is a view."
)
TOO_MUCH = "The values are right, but the cache takes too much memory. K and V of max_tokens positions are"


def run(function: Function, kv_heads: int, head_dim: int, max_tokens: int, operations: Sequence[str]) -> list[Any]:
    """What each operation, such as "append 3" or "truncate 2", leads to. The n-th token's K is n and its V is -n.

    Heads and dimensions differ behind the point: token 1 has the K 1.23 in head 2, dimension 3.
    """
    with Made() as made:
        cache = made_by(function, kv_heads, head_dim, max_tokens)
    if SECOND in operations:
        _refuse_shared(cache, function(kv_heads, head_dim, max_tokens))
    cache = copy.deepcopy(cache)  # a fresh one, whoever else holds it
    results: list[Any] = []
    returned: list[Tensor] = []
    count, complaint = 0, ""
    for operation in operations:
        if operation == SECOND:
            continue
        name, number = operation.split()
        before = cache.length
        try:
            if name == "truncate":
                cache.truncate(int(number))
                results.append((operation, cache.length))
                continue
            k = tokens(kv_heads, head_dim, range(count + 1, count + 1 + int(number)))
            count += int(number)
            v = -k
            with Made() as meanwhile:
                both = cache.append(k, v)
            keys, values = _pair(both, full=before + int(number) > max_tokens)
            results.append((operation, cache.length, keys.clone(), values.clone()))
            returned += [keys, values]
            if meanwhile.largest > max(2 * k.numel(), max_tokens):
                complaint = COPIED
        except ValueError:
            results.append((operation, "refused", "unchanged" if cache.length == before else "but length changed"))
        except (AssertionError, IndexError, OverflowError, MemoryError) as error:
            raise NotAsAsked(
                f"{operation} was refused with {type(error).__name__}. Raise ValueError, as the docstring says: that "
                "can be told from a mistake in the code."
            ) from None
    if len({tensor.untyped_storage().data_ptr() for tensor in returned}) > 2:
        complaint = COPIED
    needed = 2 * kv_heads * max_tokens * head_dim
    if made.numbers > needed + 2 * max_tokens + 16:  # a few numbers for something else do no harm
        complaint = complaint or f"{TOO_MUCH} {needed:,} numbers, and memory for {made.numbers:,} was taken."
    if complaint and difference(expected(kv_heads, head_dim, max_tokens, operations), results, 1e-4) is None:
        raise NotAsAsked(complaint, results)
    return results


def made_by(function: Function, kv_heads: int, head_dim: int, max_tokens: int) -> Any:
    """A cache, as the function makes it. Raises NotDone for one that isn't written yet, NotAsAsked where it is none."""
    try:
        cache = function(kv_heads, head_dim, max_tokens)
    except NotDone as unfinished:
        raise NotDone(str(unfinished) or _what_is_missing(function)) from None
    if cache is ...:
        raise NotDone(_what_is_missing(function))
    append = getattr(type(cache), "append", None)
    if not inspect.isfunction(append):  # a list has one, too, that isn't written here
        problem = f"new_cache returned {type_in_words(cache)}, which has no append of yours. It returns a KVCache."
        raise NotAsAsked(problem, cache)
    if does_nothing(append):
        raise NotDone("append is still empty: write it, and run the cell again.")
    if not isinstance(getattr(cache, "length", None), int):
        raise NotAsAsked("The cache has no number `length`: set self.length = 0 in __init__, and keep it up to date.")
    return cache


def _refuse_shared(cache: Any, other: Any) -> None:
    ours, theirs = (
        {t.untyped_storage().data_ptr() for t in tree_leaves(getattr(c, "__dict__", {})) if isinstance(t, Tensor)}
        for c in (cache, other)
    )
    if cache is other or ours & theirs:
        raise NotAsAsked(
            "new_cache was called twice, and both caches use the same memory. Each layer of a model needs a cache of "
            "its own: take the memory in __init__."
        )


class Made(TorchDispatchMode):
    """Notes how many numbers the memory holds that is taken meanwhile, and the largest tensor; views take none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self._storages: dict[int, Tensor] = {}  # kept, so that no address is used twice

    @property
    def numbers(self) -> int:
        return sum(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in self._storages.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.largest = max(self.largest, tensor.numel())
                self._storages[tensor.untyped_storage().data_ptr()] = tensor
        return result


def _pair(returned: Any, full: bool) -> list[Tensor]:
    if isinstance(returned, (list, tuple)) and len(returned) == 2 and all(isinstance(t, Tensor) for t in returned):
        return list(returned)
    if full:
        raise NotAsAsked(
            f"The new positions don't fit, and append returned {type_in_words(returned)}. Raise ValueError, which "
            "nobody can overlook.",
            returned,
        )
    raise NotAsAsked(
        f"append returned {type_in_words(returned)}. It returns two tensors: all keys so far, and all values so far.",
        returned,
    )


def _what_is_missing(function: Any) -> str:
    """Where the class is written and new_cache isn't."""
    cls = getattr(inspect.unwrap(function), "__globals__", {}).get("KVCache")
    if cls is None or does_nothing(getattr(cls, "append", None)):
        return ""
    return (
        "Your class KVCache is there, but new_cache still returns `...`: let it return "
        "KVCache(kv_heads, head_dim, max_tokens)."
    )


def tokens(kv_heads: int, head_dim: int, numbers: Sequence[int]) -> Tensor:
    """K of the tokens with these numbers, [kv_heads, T, D]."""
    heads, dims = torch.arange(kv_heads) / 10, torch.arange(head_dim) / 100
    return torch.tensor(list(numbers), dtype=torch.float32)[None, :, None] + heads[:, None, None] + dims


def expected(kv_heads: int, head_dim: int, max_tokens: int, operations: Sequence[str]) -> list[Any]:
    """The same by another way: a list of the numbers of the tokens that are in the cache."""
    inside: list[int] = []
    results: list[Any] = []
    made = 0
    for operation in operations:
        if operation == SECOND:
            continue
        name, number = operation.split()
        if name == "truncate":
            fits = 0 <= int(number) <= len(inside)
            inside = inside[: int(number)] if fits else inside
            results.append((operation, len(inside)) if fits else (operation, "refused", "unchanged"))
            continue
        new = list(range(made + 1, made + 1 + int(number)))
        made += int(number)
        if len(inside) + len(new) > max_tokens:
            results.append((operation, "refused", "unchanged"))
            continue
        inside = inside + new
        keys = tokens(kv_heads, head_dim, inside)
        results.append((operation, len(inside), keys, -keys))
    return results
