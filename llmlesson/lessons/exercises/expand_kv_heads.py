"""A KV head for every query head, for code that knows nothing of groups."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_engine

STUB = '''
def expand_kv_heads(kv, query_heads):
    """K (or V) with a head for every query head: at h, the KV head that query head h reads.

    kv: [kv_heads, S, D]; query_heads is a multiple of kv_heads. Returns [query_heads, S, D].
    """
    return ...
'''

SOLUTION = """
def expand_kv_heads(kv, query_heads):
    group = query_heads // kv.shape[0]
    return kv.repeat_interleave(group, dim=0)
"""

BY_INDEX = """
def expand_kv_heads(kv, query_heads):
    group = query_heads // len(kv)
    return kv[[head // group for head in range(query_heads)]]
"""

BY_EXPAND = """
def expand_kv_heads(kv, query_heads):
    kv_heads, length, head_dim = kv.shape
    wide = kv[:, None].expand(kv_heads, query_heads // kv_heads, length, head_dim)
    return wide.reshape(query_heads, length, head_dim)
"""

BY_POSITIONS = """
def expand_kv_heads(kv, query_heads):
    return kv.repeat(1, query_heads // len(kv), 1).view(query_heads, *kv.shape[1:])
"""

TILED = (
    "The KV heads stand in order, again and again: query head h would read KV head h % kv_heads. Repeat each head by "
    "itself first: 0, 0, …, 1, 1, …, so that it is h // group."
)
POSITIONS = (
    "The shape is right, but the content is not: each position is there several times, and later ones have moved on to "
    "the next head. Repeat whole heads, along the first dimension."
)

MISTAKES = (
    Mistake(SOLUTION.replace("repeat_interleave(group, dim=0)", "repeat(group, 1, 1)"), TILED),
    Mistake(
        "import torch\n" + SOLUTION.replace("kv.repeat_interleave(group, dim=0)", "torch.cat([kv] * group)"), TILED
    ),
    Mistake(BY_INDEX.replace("head // group", "head % len(kv)"), TILED),
    Mistake(
        BY_EXPAND.replace(
            "kv[:, None].expand(kv_heads, query_heads // kv_heads,", "kv.expand(query_heads // kv_heads, kv_heads,"
        ),
        TILED,
    ),
    Mistake(
        SOLUTION.replace("repeat_interleave(group, dim=0)", "repeat(1, 1, group).view(query_heads, *kv.shape[1:])"),
        POSITIONS,
    ),
    Mistake(SOLUTION.replace("dim=0)", "dim=1).view(query_heads, *kv.shape[1:])"), POSITIONS),
    Mistake(
        SOLUTION.replace("kv.repeat_interleave(group, dim=0)", "kv[:1].expand(query_heads, -1, -1)"),
        "All query heads got KV head 0. There are more, and each serves its own group.",
    ),
    Mistake(
        SOLUTION.replace(
            "kv.repeat_interleave(group, dim=0)", "kv.mean(dim=0, keepdim=True).expand(query_heads, -1, -1)"
        ),
        "All query heads got the mean of the KV heads. A mean of heads is no head: each query head reads the one "
        "that it was trained with.",
    ),
    Mistake(
        BY_INDEX.replace("head // group", "len(kv) - 1 - head // group"),
        "The KV heads stand in reverse. Query head 0 reads KV head 0.",
    ),
    Mistake(
        BY_INDEX.replace("head // group", "min(head, len(kv) - 1)"),
        "The first query heads got a KV head each, and the others all got the last one. The groups are equally large.",
    ),
    Mistake(
        "import torch\n"
        + SOLUTION.replace(
            "    return kv.repeat_interleave(group, dim=0)",
            "    out = torch.zeros(query_heads, *kv.shape[1:])\n    out[::group] = kv\n    return out",
        ),
        "Only the first query head of each group got something. All heads of a group read the same KV head.",
    ),
    Mistake(SOLUTION.replace("interleave(group", "interleave(query_heads"), says="The shape is"),
    Mistake(SOLUTION.replace("(group, dim=0)", "(group)"), says="The shape is"),
    Mistake(SOLUTION.replace("dim=0", "dim=1"), says="The shape is"),
    Mistake(
        BY_INDEX.replace(
            "kv[[head // group for head in range(query_heads)]]", "[kv[head // group] for head in range(query_heads)]"
        ),
        says="It is a list, where a tensor is expected. The values are right.",
    ),
    Mistake(
        SOLUTION.replace("dim=0)", "dim=0).double()"), says="The dtype is float64, not float32. The values are right."
    ),
    Mistake(
        SOLUTION.replace("dim=0)", "dim=0).half()"), says="The dtype is float16, not float32. The values are right."
    ),
    Mistake(SOLUTION.replace("dim=0)", "dim=0).tolist()"), says="It is a list, where a tensor is expected."),
    Mistake(SOLUTION.replace("dim=0)", "dim=0).numpy()"), says="It is an ndarray, where a tensor is expected."),
    Mistake(SOLUTION.replace("// kv", "/ kv"), says="TypeError"),
    Mistake(
        SOLUTION.replace("query_heads // kv.shape[0]", "query_heads // 2"),
        "You took two KV heads for granted. How many there are, kv.shape[0] says.",
    ),
    Mistake(
        "import torch\n"
        + SOLUTION.replace(
            "    return kv.repeat_interleave(group, dim=0)",
            "    kv.mul_(2)\n    return kv.repeat_interleave(group, dim=0) / 2",
        ),
        says="changed its input: kv",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    kv = torch.tensor([[[0.0, 1.0], [2.0, 3.0]], [[10.0, 11.0], [12.0, 13.0]]])  # head 0 is small, head 1 large
    small, large = kv
    yield Case((kv, 4), torch.stack((small, small, large, large)), "Two query heads for each of the two KV heads.")
    yield Case((kv, 6), torch.stack((small, small, small, large, large, large)), "Three query heads for each KV head.")
    yield Case((kv, 2), kv, "As many KV heads as query heads: there is nothing to do.")
    yield Case((kv[1:], 3), torch.stack((large, large, large)), "One KV head for all three query heads.")
    for _ in range(10):
        kv_heads, group = rng.randrange(1, 6), rng.randrange(1, 6)
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        kv = torch.randn(kv_heads, rng.randrange(1, 9), 2 * rng.randrange(1, 5), generator=generator)
        expected = torch.empty(kv_heads * group, *kv.shape[1:])
        for member in range(group):
            expected[member::group] = kv  # every group-th head, from `member` on
        yield Case((kv, kv_heads * group), expected, origin="random")
    engine = real_engine()
    cache, _ = engine.prefill(engine.tokenizer.encode("Nine ask, three answer."))
    for kv in (cache.keys(7), cache.values(7)):
        first, second, third = kv
        expected = torch.stack([first] * 3 + [second] * 3 + [third] * 3)
        yield Case((kv, engine.config.num_attention_heads), expected, origin="real model")


EXERCISE = Exercise(
    lesson="06",
    stub=STUB,
    hints=(
        "Write down, for 2 KV heads and 6 query heads, which KV head each query head reads. In which order do the KV "
        "heads have to stand?",
        "Each KV head stands query_heads // kv_heads times in a row. PyTorch has two functions that repeat; look at "
        "what each makes of torch.tensor([0, 1]).",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_INDEX, BY_EXPAND, BY_POSITIONS),
    tolerance=0.0,
)
