"""A cached attention step with three bugs that a prompt alone does not show."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from llmlesson.engine.attention import attend_reference
from llmlesson.engine.rope import rotate, rotation
from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_engine

# What the notebook shows, to be mended.
BROKEN = """
def broken_step(q, k, v, keys, values, turn):
    old, new = keys.shape[1], k.shape[1]
    positions = torch.arange(new)
    q, turned = turn(q, positions), turn(k, positions)
    all_keys, all_values = torch.cat((keys, turned), dim=1), torch.cat((values, v), dim=1)

    group = len(q) // len(keys)  # query heads that share one KV head
    scores = q @ all_keys.repeat_interleave(group, 0).transpose(1, 2) / q.shape[-1] ** 0.5
    visible = torch.ones(new, old + new, dtype=torch.bool).tril()
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    attended = weights @ all_values.repeat_interleave(group, 0)
    return attended, torch.cat((keys, k), dim=1), all_values
"""

STUB = '''
def mended_step(q, k, v, keys, values, turn):
    """Attention of one layer for T new tokens behind the S that are in the cache.

    q: [q_heads, T, D], k and v: [kv_heads, T, D], all as they come from the projections, none turned yet.
    keys, values: [kv_heads, S, D], the cache; S may be 0.
    turn(x, positions): x, [heads, T, D], turned to its positions, [T].
    Returns (attended, keys, values): [q_heads, T, D], and the cache with the new positions, [kv_heads, S + T, D].
    """
    return ...
'''

POSITIONS, MASK, STORED = "torch.arange(new)", ".tril()", "torch.cat((keys, k), dim=1)"
RIGHT = {POSITIONS: "torch.arange(old, old + new)", MASK: ".tril(old)", STORED: "all_keys"}
LEFT = {
    POSITIONS: "the positions still start at 0, whatever is in the cache",
    MASK: "the mask still starts at the first key, so that the new tokens don't see what is close to them",
    STORED: "K still goes into the cache without being turned",
}


def mended(bugs: set[str]) -> str:
    """The broken step with these bugs left in."""
    source = "import torch\n" + BROKEN.replace("broken_step", "mended_step")
    for bug, right in RIGHT.items():
        if bug not in bugs:
            source = source.replace(bug, right)
    return source


SOLUTION = mended(set())

BY_POSITION = """
import torch
import torch.nn.functional as F

def mended_step(q, k, v, keys, values, turn):
    positions = torch.arange(k.shape[1]) + keys.shape[1]
    q, k = turn(q, positions), turn(k, positions)
    keys, values = torch.hstack((keys, k)), torch.hstack((values, v))
    everywhere = torch.arange(keys.shape[1])
    visible = everywhere[None, :] <= positions[:, None]  # [T, S + T]
    out = F.scaled_dot_product_attention(q[None], keys[None], values[None], visible, enable_gqa=True)[0]
    return out, keys, values
"""


def what_is_left(bugs: set[str]) -> str:
    """A nudge that leaves something to find: one bug is described at a time, and none in the step as it was."""
    if len(bugs) == len(LEFT):
        return "All three bugs are still there. Which lines mean something else when the cache isn't empty?"
    count = "Two bugs are left. One of them" if len(bugs) == 2 else "One bug is left"
    return f"{count}: {next(text for bug, text in LEFT.items() if bug in bugs)}."


LEFTOVERS = [{bug for bug, stays in zip(RIGHT, choice, strict=True) if stays} for choice in product((0, 1), repeat=3)]

MISTAKES = (
    *(Mistake(mended(bugs), what_is_left(bugs)) for bugs in LEFTOVERS if bugs),
    Mistake(
        SOLUTION.replace(".tril(old)", ".tril(old - 1)").replace("softmax(dim=-1)", "softmax(dim=-1).nan_to_num()"),
        "A new token does not see itself. Query t is at position old + t and sees the keys up to there, included.",
    ),
    Mistake(
        SOLUTION.replace(".tril(old)", ".tril(old + 1)"),
        "A new token sees the one after it. Query t is at position old + t and sees the keys up to there.",
    ),
    Mistake(
        SOLUTION.replace("torch.arange(old, old + new)", "torch.arange(old, old + new) + (old > 0)"),
        "Positions are one too high after a cache. The first new token is at `old`: counting begins at 0.",
    ),
    Mistake(
        SOLUTION.replace(
            "    all_keys, all_values", "    keys = turn(keys, torch.arange(old))\n    all_keys, all_values"
        ),
        "The keys of the cache are turned again. They went in turned, once for all.",
    ),
    Mistake(
        SOLUTION.replace("return attended, all_keys, all_values", "return attended, turned, v"),
        "Only the new K and V are returned. The cache is what was there and what is new.",
    ),
    Mistake(
        SOLUTION.replace("torch.arange(old, old + new)", "torch.arange(old - 1, old + new - 1)"),
        "Positions are one too low behind a cache. The old ones are 0 to old - 1, so the first new token is at `old`.",
    ),
    Mistake(
        SOLUTION.replace("old, new = keys.shape[1]", "old, new = len(keys)")
        .replace(".tril(old)", ".tril(keys.shape[1])")
        .replace("old + new, dtype", "keys.shape[1] + new, dtype"),
        "Positions begin at len(keys), which is the number of heads. How many are in the cache is keys.shape[1].",
    ),
    Mistake(
        SOLUTION.replace("    q, turned = turn(q, positions), turn(k, positions)", "    turned = turn(k, positions)"),
        "Q isn't turned. Query and key are each turned to their own position: then their product depends on the "
        "distance.",
    ),
    Mistake(
        SOLUTION.replace("turn(q, positions), ", "turn(q, torch.arange(new)), "),
        "The new keys are turned to the right positions, and the queries still to 0, 1, …",
    ),
    Mistake(
        SOLUTION.replace("turn(k, positions)", "turn(k, torch.arange(new))"),
        "The queries are turned to the right positions, and the new keys still to 0, 1, …",
    ),
    Mistake(
        SOLUTION.replace("scores.masked_fill(~visible, -torch.inf)", "(scores * visible)"),
        "A hidden key gets the score 0, which is a score like others: it still has a share. Minus infinity has none.",
    ),
    Mistake(
        SOLUTION.replace(
            "scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)", "scores.softmax(dim=-1) * visible"
        ),
        "The hidden keys are taken out after softmax, so that the shares of the others don't add up to 1.",
    ),
    Mistake(
        SOLUTION.replace("softmax(dim=-1)", "softmax(dim=-2)"),
        "softmax goes over the queries. The shares of one query, over all keys, add up to 1: dim=-1.",
    ),
    Mistake(SOLUTION.replace("** 0.5", ""), "The scores are divided by D, not by its square root."),
    Mistake(
        SOLUTION.replace("return attended, all_keys, all_values", "return attended, all_values, all_keys"),
        "K and V of the cache come back in the wrong order.",
    ),
    Mistake(
        SOLUTION.replace("group = len(q) // len(keys)", "group = 3"),
        "Three query heads for each KV head are this model's number. Others have another: len(q) // len(keys).",
    ),
    Mistake(
        SOLUTION.replace(
            "return attended, all_keys, all_values", "return attended, all_keys[:, -64:], all_values[:, -64:]"
        ),
        "The oldest positions are dropped once there are many. This model's layers look at all of them.",
    ),
    Mistake(
        SOLUTION.replace("-torch.inf", "-50.0"),
        "A hidden key gets the score -50. Next to scores that are lower still it wins: minus infinity never does.",
    ),
    Mistake(
        SOLUTION.replace("softmax(dim=-1)", "exp()").replace(
            "    attended =", "    weights = weights / weights.sum(dim=-1, keepdim=True)\n    attended ="
        ),
        "The exponential of a large score is infinity, and infinity by infinity is no number. softmax takes the "
        "largest score off first, which changes nothing else.",
    ),
    Mistake(
        SOLUTION.replace("v), dim=1)", "turn(v, positions)), dim=1)"),
        "V is turned as well. Only Q and K are: positions decide who looks at whom, not what is handed over.",
    ),
    Mistake(
        SOLUTION.replace("all_keys.repeat_interleave(group, 0)", "all_keys.repeat(group, 1, 1)"),
        "Query head h reads KV head h // group: repeat each head by itself (repeat_interleave), not the row of heads.",
    ),
    Mistake(SOLUTION.replace(" / q.shape[-1] ** 0.5", ""), "The scores are not divided by the square root of D."),
    Mistake(
        BY_POSITION.replace("F.scaled_dot_product_attention(q[None]", "attend(q[None]")
        .replace("visible, enable_gqa=True", "visible")
        .replace("import torch\n", "import torch\nfrom llmlesson.engine.attention import attend\n", 1),
        says="You called attention.attend, which is the course's own",
    ),
    Mistake(
        "from llmlesson.engine.attention import attend_reference\n"
        + BY_POSITION.replace(
            "F.scaled_dot_product_attention(q[None], keys[None], values[None], visible, enable_gqa=True)[0]",
            "attend_reference(q, keys, values)",
        ),
        says="You called attention.attend_reference, which is the course's own",
    ),
    Mistake(
        SOLUTION.replace(
            "torch.ones(new, old + new, dtype=torch.bool).tril(old)", "causal_mask(new, old + new, 'cpu')"
        ).replace("import torch\n", "import torch\nfrom llmlesson.engine.attention import causal_mask\n"),
        says="You called attention.causal_mask, which is the course's own",
    ),
    Mistake(
        SOLUTION.replace("return attended, all_keys, all_values", "return attended.double(), all_keys, all_values"),
        says="The values are right.",
    ),
)


def turn_by(frequencies: Tensor, x: Tensor, positions: Tensor) -> Tensor:
    """x [heads, T, D] rotated to positions [T]."""
    cos, sin = rotation(frequencies, positions[None])
    return rotate(x[None], cos, sin)[0]


def cases(rng: random.Random) -> Iterator[Case]:
    generator = torch.Generator().manual_seed(0)
    yield case(generator, (1, 2, 2), 3, 2, "fixed")
    yield case(generator, (1, 2, 2), 3, 1, "fixed")
    yield case(generator, (1, 1, 2), 0, 3, "fixed", "The cache is empty: this is a prompt.")
    yield case(generator, (2, 2, 2), 0, 3, "fixed", "Queries and keys are large here, and so are the scores.", 20.0)
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    yield case(generator, (1, 1, 2), 100, 2, "random", "The cache is long here.")
    for _ in range(8):
        sizes = rng.choice((1, 2, 3)), rng.choice((1, 2, 3)), rng.choice((1, 2))
        yield case(generator, sizes, rng.randrange(6), rng.randrange(1, 5), "random")
    yield real_case()


def case(
    generator: torch.Generator,
    sizes: tuple[int, int, int],
    old: int,
    new: int,
    origin: str,
    means: str = "",
    scale: float = 1.0,
) -> Case:
    """A step of `new` tokens behind `old` ones. sizes: KV heads, query heads to each, pairs in a head."""
    kv_heads, group, pairs = sizes
    turn = partial(turn_by, torch.tensor([1.0, 0.1])[:pairs])
    q, k, v = (
        torch.randn(n, old + new, 2 * pairs, generator=generator) for n in (kv_heads * group, kv_heads, kv_heads)
    )
    q, k = scale * q, scale * k
    # By another way: everything read at once, and the reference of the engine.
    everywhere = torch.arange(old + new)
    turned = turn(k, everywhere)
    attended = attend_reference(turn(q, everywhere)[:, old:], turned, v)
    args = (q[:, old:], k[:, old:], v[:, old:], turned[:, :old], v[:, :old], turn)
    return Case(args, (attended, turned, v), means, origin)


def real_case() -> Case:
    """A second turn in layer 0 of the real model, whose K before turning is turned back from the engine's."""
    engine = real_engine()
    ids = engine.tokenizer.chat("Why is the sky blue?")
    with engine.record([0]) as recording:
        engine.prefill(ids)
    kept, old = recording[0], len(ids) - 6
    turn = partial(turn_by, engine.model.frequencies.cpu())
    back = -torch.arange(len(ids))
    q, k = turn(kept.q, back)[:, old:], turn(kept.k, back)[:, old:]
    attended = attend_reference(kept.q[:, old:], kept.k, kept.v)
    args = (q, k, kept.v[:, old:], kept.k[:, :old], kept.v[:, :old], turn)
    return Case(args, (attended, kept.k, kept.v), origin="real model")


EXERCISE = Exercise(
    lesson="04b",
    stub=STUB,
    hints=(
        "With an empty cache its attention is right. So ask of each line: what is different when something is in the "
        "cache already? And of what is returned: is it what the next step needs?",
        "Three lines are wrong: where the new tokens stand, which keys they see, and which K the cache gets. "
        "tril(d) moves the diagonal d to the right.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_POSITION,),
)
