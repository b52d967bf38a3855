"""A KV cache for one layer, that refuses what does not fit."""

from __future__ import annotations

import random
from collections.abc import Iterator

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.learners_cache import COPIED, SECOND, TOO_MUCH, expected, run

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
CUT_OFF = """        self.keys, self.values = self.keys[:, :length], self.values[:, :length]
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
        SOLUTION.replace("        self.values = torch.zeros(kv_heads, max_tokens, head_dim)\n", "").replace(
            "self.keys = torch", "self.keys = self.values = torch"
        ),
        "V is also found where K should be: a = b = torch.zeros(…) makes one tensor with two names.",
    ),
    Mistake(
        SOLUTION.replace("        self.length = length\n", "        self.length = length\n" + CUT_OFF),
        "truncate cut off the memory as well, and now there is no room behind what stayed. Set the number only.",
    ),
    Mistake(
        SOLUTION.replace(RANGE, "").replace(
            "self.length = length\n", "self.length = max(0, min(length, self.length))\n"
        ),
        "truncate takes a length that isn't there, and quietly makes another of it. Whoever asked for that has "
        "miscounted: raise ValueError.",
    ),
    Mistake(
        SOLUTION.replace("if not 0 <= length <=", "if not 0 <= length <"),
        "truncate refuses the length that the cache has. To forget nothing is allowed.",
    ),
    Mistake(
        SOLUTION.replace("if not 0 <= length <=", "if not 0 < length <="),
        "truncate refuses 0. To forget everything is allowed: that is an empty cache.",
    ),
    Mistake(
        SOLUTION.replace(ROOM, "        assert end <= self.keys.shape[1]\n"), says="was refused with AssertionError."
    ),
    Mistake(
        SOLUTION.replace('raise ValueError(f"no room', 'return print(f"no room'),
        says="The new positions don't fit, and append returned None",
    ),
    Mistake(
        SOLUTION.replace("def new_cache", "@functools.cache\ndef new_cache").replace(
            "import torch", "import functools\nimport torch"
        ),
        says="new_cache was called twice, and both caches use the same memory",
    ),
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


def cases(rng: random.Random) -> Iterator[Case]:
    for operations in (
        ["append 2"],
        ["append 2", "append 1"],
        ["append 3", "append 1", "append 1"],
        ["append 4", "append 1"],
        ["append 2", "append 3", "append 1"],
        ["append 3", "truncate 1", "append 2"],
        ["append 2", "truncate 3"],
        ["append 2", "truncate 2", "append 2"],
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
    operations = [SECOND, "append 2"]
    yield Case((1, 2, 3, operations), expected(1, 2, 3, operations), origin="random")


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
