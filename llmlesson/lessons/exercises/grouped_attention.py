"""Attention of one new token, with query heads that share KV heads."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from llmlesson.engine.attention import attend, attend_reference
from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake, NotAsAsked
from llmlesson.lessons.real import real_engine

STUB = '''
def grouped_attention(q, k, v):
    """Attention of one new token. It may see every position in the cache, so there is no mask.

    q: [query_heads, D]. k, v: [kv_heads, S, D]. The first query_heads // kv_heads query heads read KV head 0, the next
    ones read KV head 1, and so on. Scores are divided by the square root of D.
    Returns [query_heads, D]. K and V are not repeated in memory: for a long cache, the check looks.
    """
    return ...
'''

SOLUTION = """
import math

def grouped_attention(q, k, v):
    kv_heads, _, head_dim = k.shape
    q = q.view(kv_heads, -1, head_dim)  # [kv_heads, group, D]: the group stands where the tokens would
    scores = q @ k.transpose(1, 2) / math.sqrt(head_dim)  # [kv_heads, group, S]
    mixed = scores.softmax(dim=-1) @ v  # [kv_heads, group, D]
    return mixed.view(-1, head_dim)
"""

EINSUM = """
import torch

def grouped_attention(q, k, v):
    q = q.unflatten(0, (len(k), len(q) // len(k)))
    shares = (torch.einsum("kgd,ksd->kgs", q, k) * q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("kgs,ksd->kgd", shares, v).flatten(0, 1)
"""

HEAD_BY_HEAD = """
import torch

def grouped_attention(q, k, v):
    group = q.shape[0] // k.shape[0]
    rows = []
    for head, query in enumerate(q):
        shares = torch.softmax(k[head // group] @ query / len(query) ** 0.5, dim=0)
        rows.append(shares @ v[head // group])
    return torch.stack(rows)
"""

WITH_SDPA = """
import torch.nn.functional as F

def grouped_attention(q, k, v):
    grouped = q.reshape(k.shape[0], q.shape[0] // k.shape[0], q.shape[1])
    return F.scaled_dot_product_attention(grouped, k, v).reshape(q.shape)
"""

TILED = """
import math

def grouped_attention(q, k, v):
    kv_heads, _, head_dim = k.shape
    q = q.view(-1, kv_heads, head_dim).transpose(0, 1)
    scores = q @ k.transpose(1, 2) / math.sqrt(head_dim)
    mixed = scores.softmax(dim=-1) @ v
    return mixed.transpose(0, 1).reshape(-1, head_dim)
"""

REPEATED = """
import math

def grouped_attention(q, k, v):
    group = len(q) // len(k)
    k, v = k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0)
    scores = q[:, None] @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    return (scores.softmax(dim=-1) @ v)[:, 0]
"""

BROADCAST = """
import math

def grouped_attention(q, k, v):
    kv_heads, _, head_dim = k.shape
    q = q.view(kv_heads, -1, 1, head_dim)  # [kv_heads, group, 1, D]
    scores = q @ k[:, None].transpose(-1, -2) / math.sqrt(head_dim)  # [kv_heads, group, 1, S]
    return (scores.softmax(dim=-1) @ v[:, None]).reshape(-1, head_dim)
"""

COPIED = (
    "The numbers are right, but K and V were copied for each query head, and that is what grouping should save. "
    "repeat_interleave copies, and so does @ where it has to broadcast K over a dimension of its own for the group. "
    "Let the query heads of a group be the rows of one matrix, [kv_heads, group, D]: one product serves them all."
)

MISTAKES = (
    Mistake(
        TILED,
        "Query head h read KV head h % kv_heads. Neighbours belong together: it is h // group, so the first few query "
        "heads all read KV head 0.",
    ),
    Mistake(
        SOLUTION.replace(" @ v", " @ v[:1]"), "All query heads mix the values of KV head 0. Each group has its own."
    ),
    Mistake(
        SOLUTION.replace(" @ k.", " @ k[:1]."), "All query heads are compared with KV head 0. Each group has its own."
    ),
    Mistake(SOLUTION.replace(" / math.sqrt(head_dim)", ""), "The scores are not divided by the square root of D."),
    Mistake(
        SOLUTION.replace("math.sqrt(head_dim)", "head_dim"),
        "The scores are divided by D. It is the square root of D.",
    ),
    Mistake(
        SOLUTION.replace("dim=-1", "dim=1"),
        "The softmax ran over the heads of a group. Each query head shares itself out over the positions: the last "
        "dimension of the scores.",
    ),
    Mistake(SOLUTION.replace(".softmax(dim=-1)", ""), "The softmax is missing: scores are no shares yet."),
    Mistake(
        SOLUTION.replace(" @ v", " @ k"), "You mixed the keys. Keys are for comparing; what is mixed are the values."
    ),
    Mistake(
        SOLUTION.replace(
            "    mixed =", "    scores = scores + scores.new_full(scores.shape, -math.inf).triu(1)\n    mixed ="
        ),
        "Positions were hidden. There is one new token, the last, and it sees them all: no mask.",
    ),
    Mistake(
        SOLUTION.replace("mixed.view(-1, head_dim)", "mixed.transpose(0, 1).reshape(-1, head_dim)"),
        "Each head's result is right, but in the wrong row. The heads of a group are neighbours in the result, too.",
    ),
    Mistake(
        TILED.replace("mixed.transpose(0, 1).reshape(-1, head_dim)", "mixed.reshape(-1, head_dim)"),
        "The query heads were dealt out like cards. The first query_heads // kv_heads of them belong to KV head 0: "
        "view q as [kv_heads, group, D].",
    ),
    Mistake(
        SOLUTION.replace("math.sqrt(head_dim)", "math.sqrt(q.shape[0] * q.shape[1])"),
        "The scores are divided by the square root of the number of query heads. It is that of D.",
    ),
    Mistake(
        SOLUTION.replace("math.sqrt(head_dim)", "math.sqrt(k.shape[1])"),
        "The scores are divided by the square root of the number of positions. It is that of D.",
    ),
    Mistake(
        SOLUTION.replace("scores.softmax(dim=-1)", "scores.sigmoid()"),
        "A head's weights don't add up to 1: a sigmoid looks at each score alone. softmax makes shares of them.",
    ),
    Mistake(
        SOLUTION.replace(
            "scores.softmax(dim=-1)",
            "((scores - scores.max()).exp() / (scores - scores.max()).exp().sum(dim=-1, keepdim=True))",
        ),
        "The largest score of all heads was taken off. A head whose own scores are far below it gets nothing but "
        "zeros, and 0 / 0. Each head needs its own largest score; softmax does that.",
    ),
    Mistake(REPEATED, says=COPIED),
    Mistake(BROADCAST, says=COPIED),
    Mistake(
        HEAD_BY_HEAD.replace("k[head // group] @", "k[head // group].clone() @").replace(
            "v[head // group])", "v[head // group].clone())"
        ),
        says=COPIED,
    ),
    Mistake(
        HEAD_BY_HEAD.replace("k[head // group] @", "k[[head // group]][0] @").replace(
            "v[head // group])", "v[[head // group]][0])"
        ),
        says=COPIED,
    ),
    Mistake(SOLUTION.replace("mixed.view(-1, head_dim)", "mixed"), says="The shape is"),
    Mistake(SOLUTION.replace("mixed.view(-1, head_dim)", "mixed.mean(dim=1)"), says="The shape is"),
    Mistake(
        SOLUTION.replace("scores.softmax(dim=-1)", "(scores.exp() / scores.exp().sum(dim=-1, keepdim=True))"),
        "The exponential of a large score is infinity, and infinity by infinity is no number. softmax takes the "
        "largest score off first, which changes nothing else.",
    ),
    Mistake(
        "from llmlesson.engine.attention import attend\n\ndef grouped_attention(q, k, v):\n"
        "    return attend(q[None, :, None], k[None], v[None])[0, :, 0]",
        says="You called attention.attend, which is the course's own",
    ),
    Mistake(
        "from llmlesson.engine.attention import attend_reference\n\ndef grouped_attention(q, k, v):\n"
        "    return attend_reference(q[:, None], k, v)[:, 0]",
        says="You called attention.attend_reference, which is the course's own",
    ),
    Mistake(
        SOLUTION.replace("mixed.view(-1, head_dim)", "mixed.view(-1, head_dim).double()"), says="The values are right."
    ),
    Mistake(
        SOLUTION.replace("mixed.view(-1, head_dim)", "mixed.view(-1, head_dim).tolist()"), says="The values are right."
    ),
    Mistake(SOLUTION.replace("q = q.view(", "q = q.reshape(kv_heads, 2 * "), says="RuntimeError"),
    Mistake(
        SOLUTION.replace("    return", "    q *= 0\n    return")
        .replace("q = q.view", "heads = q.view")
        .replace("q @", "heads @"),
        says="changed its input: q",
    ),
)

LONG = 64  # positions from which on a copy would matter, and is looked for


# What torch calls those of its operations that copy numbers as they are.
COPYING = {"cat", "clone", "copy_", "gather", "index", "index_select", "repeat", "stack", "take", "_to_copy"}


class _Made(TorchDispatchMode):
    """Counts the numbers of the largest tensor made meanwhile, and of all that are mere copies; views are none."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.copied = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            sizes = [t.numel() for t in tree_leaves(made) if isinstance(t, Tensor)]
            self.largest = max([self.largest, *sizes])
            self.copied += sum(sizes) if func.overloadpacket.__name__ in COPYING else 0
        return made


def run(function: Function, q: Tensor, k: Tensor, v: Tensor) -> Any:
    with _Made() as made:
        result = function(q, k, v)
    if k.shape[1] >= LONG and made.largest > k.numel():
        problem = f"{COPIED} (A tensor of {made.largest:,} numbers was made, where K has {k.numel():,}.)"
        raise NotAsAsked(problem, result)
    both = k.numel() + v.numel()
    if k.shape[1] >= LONG and made.copied > both:  # head by head, say: each is small, and together they are all copies
        problem = f"{COPIED} ({made.copied:,} numbers were copied in all, where K and V have {both:,} together.)"
        raise NotAsAsked(problem, result)
    return result


def cases(rng: random.Random) -> Iterator[Case]:
    # Two KV heads, three positions, D = 4. The values of head 0 are 1, 4 and 7, those of head 1 ten times as large.
    v = torch.tensor([1.0, 4.0, 7.0])[:, None].expand(3, 4) * torch.tensor([1.0, 10.0])[:, None, None]
    k = torch.stack((torch.eye(4)[:3], torch.eye(4)[1:]))  # position p of head 0 is found at p, of head 1 at p + 1
    yield Case(
        (torch.zeros(2, 4), k, v),
        torch.stack((torch.full((4,), 4.0), torch.full((4,), 40.0))),
        "Queries of 0 look at all positions alike: the mean of the values is 4 in KV head 0, and 40 in KV head 1.",
    )
    yield Case(
        (1000 * torch.eye(4)[[0, 2, 1, 3]], k, v),
        torch.tensor([1.0, 7.0, 10.0, 70.0])[:, None].expand(4, 4).clone(),
        "Each of these queries fits one key, and should get the value beside it.",
    )
    ln3 = 2 * math.log(3)
    yield Case(
        (torch.tensor([[ln3, 0, 0, 0]] * 3), torch.eye(4)[None, :2], torch.tensor([[[4.0] * 4, [0.0] * 4]])),
        torch.full((3, 4), 3.0),
        "The score is 2 ln 3 here; divided by the root of 4, it gives shares of 3/4 and 1/4.",
    )
    yield Case(
        (torch.ones(6, 4), k[:, :1], v[:, 2:]),
        torch.tensor([7.0, 70.0]).repeat_interleave(3)[:, None].expand(6, 4).clone(),
        "There is one position to look at. Three query heads read KV head 0, the next three KV head 1.",
    )
    yield Case(
        (1000 * torch.tensor([[1.0, 0, 0, 0], [-1.0, -1, -1, 0]]), k[:1], v[:1]),
        torch.stack((torch.ones(4), torch.full((4,), 4.0))),
        "One head's scores are large and positive, the other's large and negative. Each makes its own shares.",
    )
    for query_heads, kv_heads in ((4, 4), (8, 1), (6, 3), (12, 4), (6, 2)):
        yield _random_case(rng, query_heads, kv_heads, rng.randrange(2, 9), 8)
    for query_heads, kv_heads in ((6, 2), (12, 4), (8, 1)):
        yield _random_case(rng, query_heads, kv_heads, LONG + rng.randrange(99), 16)
    yield _real_case(rng)


def _random_case(rng: random.Random, query_heads: int, kv_heads: int, length: int, head_dim: int) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    q = torch.randn(query_heads, head_dim, generator=generator)
    k, v = torch.randn(2, kv_heads, length, head_dim, generator=generator)
    return Case((q, k, v), attend_reference(q[:, None], k, v)[:, 0], origin="random")


def _real_case(rng: random.Random) -> Case:
    engine, layer = real_engine(), rng.randrange(30)
    cache, token = engine.prefill(engine.tokenizer.encode("Several heads ask, and one answers. " * 10))
    with engine.record([layer]) as recording:
        engine.decode(cache, token)
    q, k, v = recording[layer].q, recording[layer].k, recording[layer].v
    return Case((q[:, 0], k, v), attend(q[None], k[None], v[None])[0, :, 0], origin="real model")


EXERCISE = Exercise(
    lesson="06",
    stub=STUB,
    hints=(
        "All query heads of a group are compared with the same keys. So far a head had one row for each token; what if "
        "the rows were the heads of the group?",
        "q.view(kv_heads, -1, D) is [kv_heads, group, D]. Its product with k.transpose(1, 2) is [kv_heads, group, S]: "
        "divide, softmax over the last dimension, times v, and view it as [query_heads, D] again.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(EINSUM, HEAD_BY_HEAD, WITH_SDPA),
    run=run,
)
