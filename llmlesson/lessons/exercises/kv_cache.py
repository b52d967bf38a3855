"""A KV cache for one layer, that refuses what does not fit."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmlesson.lessons.compare import difference, type_in_words
from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake, NotAsAsked, NotDone, does_nothing

STUB = '''
class KVCache:
    """K and V of one layer, for at most max_tokens positions. `length` says how many are in use."""

    def __init__(self, kv_heads, head_dim, max_tokens): ...

    def append(self, k, v):
        """Store k and v of T new positions, [kv_heads, T, D], behind those that are there.

        Returns all keys and all values so far, [kv_heads, length, D] each: views, nothing is copied.
        Raises ValueError where T more do not fit, and is then as it was before.
        """

    def truncate(self, length):
        """Forget all positions from `length` on. Raises ValueError unless 0 <= length <= self.length."""


def new_cache(kv_heads, head_dim, max_tokens):
    """An empty KVCache. Its memory, float32, is taken here and never again."""
    return ...
'''

SOLUTION = """
import torch

class KVCache:
    def __init__(self, kv_heads, head_dim, max_tokens):
        self.keys = torch.zeros(kv_heads, max_tokens, head_dim)
        self.values = torch.zeros(kv_heads, max_tokens, head_dim)
        self.length = 0

    def append(self, k, v):
        end = self.length + k.shape[1]
        if end > self.keys.shape[1]:
            raise ValueError(f"no room: {end} positions needed, {self.keys.shape[1]} there")
        self.keys[:, self.length : end] = k
        self.values[:, self.length : end] = v
        self.length = end
        return self.keys[:, :end], self.values[:, :end]

    def truncate(self, length):
        if not 0 <= length <= self.length:
            raise ValueError(f"can't truncate {self.length} positions to {length}")
        self.length = length

def new_cache(kv_heads, head_dim, max_tokens):
    return KVCache(kv_heads, head_dim, max_tokens)
"""

IN_ONE_TENSOR = """
import torch
from llmlesson import LessonError

class KVCache:
    def __init__(self, kv_heads, head_dim, max_tokens):
        self.both = torch.empty(2, kv_heads, max_tokens, head_dim)
        self.max_tokens, self.length = max_tokens, 0

    def append(self, k, v):
        tokens = k.size(1)
        if tokens > self.max_tokens - self.length:
            raise LessonError("full")
        self.both.narrow(2, self.length, tokens).copy_(torch.stack((k, v)))
        self.length += tokens
        return self.both[0, :, : self.length], self.both[1, :, : self.length]

    def truncate(self, length):
        if length < 0 or length > self.length:
            raise LessonError("no such position")
        self.length = length

def new_cache(kv_heads, head_dim, max_tokens):
    return KVCache(kv_heads, head_dim, max_tokens)
"""

ROOM = """        if end > self.keys.shape[1]:
            raise ValueError(f"no room: {end} positions needed, {self.keys.shape[1]} there")
"""
WRITE = """        self.keys[:, self.length : end] = k
        self.values[:, self.length : end] = v
"""
RANGE = """        if not 0 <= length <= self.length:
            raise ValueError(f"can't truncate {self.length} positions to {length}")
"""
CUT_TO_FIT = (
    """        end = min(end, self.keys.shape[1])
        k, v = k[:, : end - self.length], v[:, : end - self.length]
"""
    + WRITE
)
BY_CAT = """        if end > self.max_tokens:
            raise ValueError("full")
        self.keys = torch.cat((self.keys[:, : self.length], k), dim=1)
        self.values = torch.cat((self.values[:, : self.length], v), dim=1)
"""

# Joined anew for each token, and written back to where it came from.
WRITTEN_BACK = """        joined = torch.cat((self.keys[:, : self.length], k), dim=1)
        self.keys[:, :end] = joined
"""

RETURN = "return self.keys[:, :end], self.values[:, :end]"
COPIED = (
    "The values are right, but what is in the cache was copied for new tokens. Take the memory once, in __init__, "
    "write into it, and return slices: a slice is a view."
)
TOO_MUCH = "The values are right, but the cache takes too much memory. K and V of max_tokens positions are"

MISTAKES = (
    Mistake(
        SOLUTION.replace(ROOM, ""),
        "Nobody asked whether there is room. A slice ends where the tensor ends: several tokens too many give an error "
        "of torch's, and a single one vanishes without any.",
    ),
    Mistake(
        SOLUTION.replace(ROOM + WRITE, CUT_TO_FIT),
        "What does not fit is dropped without a word. The model would then answer a prompt that it has read in part.",
    ),
    Mistake(
        SOLUTION.replace("        if end >", "        self.length = end\n        if end >").replace(
            "self.length : end]", "end - k.shape[1] : end]"
        ),
        "The append was refused, and yet `length` has changed. Check first, then change.",
    ),
    Mistake(
        SOLUTION.replace("if end > self", "if end >= self"),
        "A cache that is exactly full is not too full: max_tokens positions fit.",
    ),
    Mistake(
        SOLUTION.replace(RETURN, "return self.keys, self.values"),
        "This gives out the slots that hold nothing yet. A query would look at them: return the first `length`.",
    ),
    Mistake(
        SOLUTION.replace(RETURN, "return k, v"),
        "Only the new positions are returned. Attention reads all of them: those of before are why there is a cache.",
    ),
    Mistake(
        SOLUTION.replace("[:, self.length : end]", "[:, : k.shape[1]]"),
        "New positions are written over the first ones. They go behind those that are there, from `length` on.",
    ),
    Mistake(
        SOLUTION.replace("self.length = end", "self.length += 1"),
        "`length` grows by one, also where more were stored. A prompt comes in one piece: count all T.",
    ),
    Mistake(
        SOLUTION.replace(RETURN, "return self.values[:, :end], self.keys[:, :end]"),
        "K and V are swapped.",
    ),
    Mistake(
        SOLUTION.replace(RANGE, ""),
        "truncate takes any number: more than there are, and slots without content count as read; or less than none.",
    ),
    Mistake(
        SOLUTION.replace("if not 0 <= length <= self.length", "if length > self.length"),
        "truncate takes a negative number. In a slice it would count from the end, without an error.",
    ),
    Mistake(
        SOLUTION.replace("        self.length = length\n", "        self.length -= length\n"),
        "truncate(n) keeps n positions. It does not drop n.",
    ),
    Mistake(
        SOLUTION.replace(ROOM + WRITE, BY_CAT).replace(
            "        self.length = 0\n", "        self.length, self.max_tokens = 0, max_tokens\n"
        ),
        says=COPIED,
    ),
    Mistake(
        SOLUTION.replace(RETURN, "return self.keys[:, :end].clone(), self.values[:, :end].clone()"),
        says=COPIED,
    ),
    Mistake(SOLUTION.replace(RETURN, "return self.keys[:, :end], self.values[:, :end].clone()"), says=COPIED),
    Mistake(
        SOLUTION.replace("        self.keys[:, self.length : end] = k\n", WRITTEN_BACK),
        says=COPIED,
    ),
    Mistake(
        SOLUTION.replace("max_tokens, head_dim)\n        self.l", "10 * max_tokens, head_dim)\n        self.l"),
        says=TOO_MUCH,
    ),
    Mistake(
        SOLUTION.replace(
            "        self.length = 0",
            "        self.spare = [torch.zeros_like(self.keys) for _ in range(9)]\n        self.length = 0",
        ),
        says=TOO_MUCH,
    ),
    Mistake(
        SOLUTION.replace("        " + RETURN + "\n", ""),
        says="append returned None. It returns two tensors",
    ),
    Mistake(
        SOLUTION.replace(RETURN, "return self.keys[:, :end]"), says="append returned a tensor. It returns two tensors"
    ),
    Mistake(SOLUTION.replace("self.length", "self.size"), says="The cache has no number `length`"),
    Mistake(
        SOLUTION.replace("torch.zeros(kv_heads", "torch.ones(kv_heads").replace(
            "head_dim)", "head_dim, dtype=torch.float64)"
        ),
        says="The dtype is float64, not float32",
    ),
    Mistake(
        "from llmlesson.engine.cache import KVCache as Theirs\n"
        + SOLUTION.replace(
            "        self.length = 0\n",
            "        self.theirs = Theirs(1, kv_heads, head_dim, max_tokens, torch.float32, torch.device('cpu'))\n"
            "        self.length = 0\n",
        ),
        says="You called cache.KVCache.__init__, which is the course's own",
    ),
)


def run(function: Function, kv_heads: int, head_dim: int, max_tokens: int, operations: Sequence[str]) -> list[Any]:
    """What each operation, such as "append 3" or "truncate 2", leads to. The n-th token's K is n and its V is -n.

    Heads and dimensions differ behind the point: token 1 has the K 1.23 in head 2, dimension 3.
    """
    try:
        with Made() as made:
            cache = function(kv_heads, head_dim, max_tokens)
    except NotDone as unfinished:
        raise NotDone(str(unfinished) or _what_is_missing(function)) from None
    append = getattr(type(cache), "append", None)
    if append is None:
        problem = f"new_cache returned {type_in_words(cache)}, which has no append. It returns a KVCache."
        raise NotAsAsked(problem, cache)
    if does_nothing(append):
        raise NotDone("append is still empty: write it, and run the cell again.")
    if not isinstance(getattr(cache, "length", None), int):
        raise NotAsAsked("The cache has no number `length`: set self.length = 0 in __init__, and keep it up to date.")
    cache = copy.deepcopy(cache)  # a fresh one, whoever else holds it
    results: list[Any] = []
    returned: list[Tensor] = []
    count, complaint = 0, ""
    for operation in operations:
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
                keys, values = _pair(cache.append(k, v))
            results.append((operation, cache.length, keys.clone(), values.clone()))
            returned += [keys, values]
            if meanwhile.largest > max(2 * k.numel(), max_tokens):
                complaint = COPIED
        except ValueError:
            results.append((operation, "refused", "unchanged" if cache.length == before else "but length changed"))
    if len({tensor.untyped_storage().data_ptr() for tensor in returned}) > 2:
        complaint = COPIED
    needed = 2 * kv_heads * max_tokens * head_dim
    if made.numbers > needed + 2 * max_tokens + 16:  # a few numbers for something else do no harm
        complaint = complaint or f"{TOO_MUCH} {needed:,} numbers, and memory for {made.numbers:,} was taken."
    if complaint and difference(expected(kv_heads, head_dim, max_tokens, operations), results, 1e-4) is None:
        raise NotAsAsked(complaint, results)
    return results


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


def _pair(returned: Any) -> list[Tensor]:
    if isinstance(returned, (list, tuple)) and len(returned) == 2 and all(isinstance(t, Tensor) for t in returned):
        return list(returned)
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


def cases(rng: random.Random) -> Iterator[Case]:
    for operations in (
        ["append 2"],
        ["append 2", "append 1"],
        ["append 3", "append 1", "append 1"],
        ["append 4", "append 1"],
        ["append 2", "append 3", "append 1"],
        ["append 3", "truncate 1", "append 2"],
        ["append 2", "truncate 3"],
        ["append 2", "truncate -1", "truncate 0", "append 1"],
    ):
        yield Case((1, 1, 4, operations), expected(1, 1, 4, operations))
    for _ in range(20):
        sizes = rng.randrange(1, 4), rng.randrange(2, 6), rng.randrange(5, 12)
        operations = ["append 1"]
        for _ in range(rng.randrange(3, 9)):
            most = 4 if rng.random() < 0.7 else 9
            operations.append(
                f"append {rng.randrange(1, most)}" if rng.random() < 0.7 else f"truncate {rng.randrange(-1, 9)}"
            )
        yield Case((*sizes, operations), expected(*sizes, operations), origin="random")


EXERCISE = Exercise(
    lesson="04",
    stub=STUB,
    hints=(
        "Two tensors of zeros, [kv_heads, max_tokens, head_dim], and a number. append writes into a slice of each, "
        "and returns a longer slice.",
        "end = self.length + k.shape[1] is where the new positions stop. If that is more than max_tokens, raise before "
        "anything else. truncate only has to set a number.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(IN_ONE_TENSOR,),
    run=run,
)
