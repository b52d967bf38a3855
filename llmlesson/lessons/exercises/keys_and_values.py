"""What one layer puts into the cache for a prompt."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace

import torch
from torch import Tensor

from llmlesson.engine.rope import rotation
from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_engine

STUB = '''
def keys_and_values(x, layer, cos, sin, kv_heads):
    """K and V of one layer, as they go into the cache.

    x: [T, H], what comes into the layer. cos, sin: [T, D/2], of the angles of each position, as in Step 3.
    layer: has .attention_norm [H] and .qkv [H, (q_heads + 2 kv_heads) D], the columns of Q, then of K, then of V.
    kv_heads: how many heads K has, and V. The norm is that of Step 3, with 1e-5 added under the root.
    Returns two tensors [kv_heads, T, D]: K, turned to its positions, and V.
    """
    return ...
'''

SOLUTION = """
import torch

def keys_and_values(x, layer, cos, sin, kv_heads):
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * layer.attention_norm
    size = kv_heads * 2 * cos.shape[-1]  # columns of K, and of V
    k, v = (x @ layer.qkv)[:, -2 * size :].split(size, dim=-1)  # [T, kv_heads · D] each
    k = k.unflatten(-1, (kv_heads, -1)).transpose(0, 1)  # [kv_heads, T, D]
    v = v.unflatten(-1, (kv_heads, -1)).transpose(0, 1)

    first, second = k.chunk(2, dim=-1)
    k = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return k, v
"""

ALL_HEADS_AT_ONCE = """
import torch
import torch.nn.functional as F

def keys_and_values(x, layer, cos, sin, kv_heads):
    tokens, hidden = x.shape
    normed = F.rms_norm(x, (hidden,), layer.attention_norm, eps=1e-5)
    heads = (normed @ layer.qkv).view(tokens, -1, 2 * cos.shape[-1])  # [T, q_heads + 2 kv_heads, D]
    q_heads = heads.shape[1] - 2 * kv_heads
    k = heads[:, q_heads : q_heads + kv_heads].permute(1, 0, 2)
    v = heads[:, q_heads + kv_heads :].permute(1, 0, 2)
    turned = torch.complex(*k.chunk(2, dim=-1)) * torch.complex(cos, sin)
    return [torch.cat((turned.real, turned.imag), dim=-1), v]
"""

WITH_THE_ENGINE = ALL_HEADS_AT_ONCE.replace("def keys", "from llmlesson.engine.rope import rotate\n\ndef keys").replace(
    "return [torch.cat((turned.real, turned.imag), dim=-1), v]", "return rotate(k, cos, sin), v"
)

HEAD_BY_HEAD = """
import torch

def keys_and_values(x, layer, cos, sin, kv_heads):
    x = x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5) * layer.attention_norm
    half = cos.shape[1]
    dim = 2 * half
    start = layer.qkv.shape[1] - 2 * kv_heads * dim
    keys, values = [], []
    for head in range(kv_heads):
        k = x @ layer.qkv[:, start + head * dim : start + (head + 1) * dim]
        a, b = k[:, :half], k[:, half:]
        keys.append(torch.hstack([a * cos - b * sin, a * sin + b * cos]))
        begin = start + (kv_heads + head) * dim
        values.append(x @ layer.qkv[:, begin : begin + dim])
    return torch.stack(keys), torch.stack(values)
"""

NORM = "    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * layer.attention_norm\n"
TURN = "    k = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)\n"
PER_HEAD = ".unflatten(-1, (kv_heads, -1)).transpose(0, 1)"
NEIGHBOURS = """    first, second = k[..., 0::2], k[..., 1::2]
    k = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
"""

SWAPPED = "K and V are swapped: K comes first, in the columns of qkv and in what is returned."

MISTAKES = (
    Mistake(SOLUTION.replace(NORM, ""), "The norm is missing: K and V are made from the normed x, not from x itself."),
    Mistake(
        SOLUTION.replace(" * layer.attention_norm", ""),
        "The norm's weights are missing: after dividing by the root mean square, multiply by layer.attention_norm.",
    ),
    Mistake(
        SOLUTION.replace(" + 1e-5", ""),
        "Under the root, 1e-5 is added to the mean of the squares. It shows where x is small.",
    ),
    Mistake(
        SOLUTION.replace(TURN, ""), "K is not turned to its positions. It goes into the cache turned, once for all."
    ),
    Mistake(
        SOLUTION.replace(
            "    return k, v",
            TURN.replace("k =", "v =").join(("    first, second = v.chunk(2, dim=-1)\n", "    return k, v")),
        ),
        "V is turned too. Only Q and K are: positions decide who looks at whom, not what is handed over.",
    ),
    Mistake(
        SOLUTION.replace("- second * sin", "+ second * sin").replace("+ first * sin", "- first * sin"),
        "K is turned the wrong way round: the signs before sin are swapped.",
    ),
    Mistake(
        SOLUTION.replace("    first, second = k.chunk(2, dim=-1)\n" + TURN, NEIGHBOURS),
        "You turned neighbours, (0, 1), (2, 3), … This model turns value i with value i + D/2.",
    ),
    Mistake(
        SOLUTION.replace("[:, -2 * size :]", "[:, : 2 * size]"),
        "These are the first columns of qkv, which belong to Q. K and V are the last.",
    ),
    Mistake(
        SOLUTION.replace("    k, v = (x", "    v, k = (x"),
        SWAPPED,
    ),
    Mistake(SOLUTION.replace("return k, v", "return v, k"), SWAPPED),
    Mistake(
        SOLUTION.replace(PER_HEAD, ".reshape(kv_heads, len(x), -1)"),
        "The shape is right, its content is not: a reshape mixes heads and positions. Split each row into its heads "
        "first, [T, kv_heads, D], then swap the first two dimensions.",
    ),
    Mistake(
        SOLUTION.replace(".transpose(0, 1)", ".transpose(0, 1).clone()").replace(
            "return k, v", "return k.transpose(0, 1), v.transpose(0, 1)"
        ),
        "The heads come first: [kv_heads, T, D].",
    ),
    Mistake(
        SOLUTION.replace(
            "return k, v",
            "group = layer.qkv.shape[1] // (2 * cos.shape[-1]) // kv_heads - 2\n"
            "    return k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)",
        ),
        "K and V are repeated for every query head. The cache holds each once; sharing them is what keeps it small.",
    ),
    Mistake(
        SOLUTION.replace("return k, v", "return torch.stack((k, v))"), says="It is a tensor, where a tuple is expected"
    ),
    Mistake(SOLUTION.replace("    x = x * torch", "    x *= torch"), says="changed its input: x"),
    Mistake(
        SOLUTION.replace(" * layer.attention_norm", "").replace(
            "    size =", "    layer.qkv *= layer.attention_norm[:, None]\n    size ="
        ),
        says="changed its input: layer",
    ),
    Mistake(
        SOLUTION.replace("    k, v =", "    layer.qkv = layer.qkv[:, -2 * size :]\n    k, v ="),
        says="changed its input: layer",
    ),
    Mistake(WITH_THE_ENGINE, says="You called rope.rotate, which is the course's own"),
    Mistake(SOLUTION.replace("return k, v", "return k.double(), v.double()"), says="The values are right"),
    Mistake(SOLUTION.replace("return k, v", "return k.half(), v.half()"), says="The dtype is float16, not float32"),
    Mistake(SOLUTION.replace("return k, v", "return k.tolist(), v.tolist()"), says="The values are right"),
    Mistake(
        SOLUTION.replace("square().mean(", "square().sum("),
        "You divided by the root of the sum of the squares. RMSNorm takes the root of their mean.",
    ),
    Mistake(
        SOLUTION.replace("x = x * torch", "x = x - x.mean(-1, keepdim=True)\n    x = x * torch"),
        "You took the mean off first, as LayerNorm does. RMSNorm only divides.",
    ),
    Mistake(
        SOLUTION.replace("return k, v", "return k, v[:, -1:]"),
        "V has a row for the last token only. The cache holds K and V of every position that is read.",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    # Rows whose squares have the mean 1, so that the norm leaves them as they are; Q is 0, K twice x, V three times.
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    eye = torch.eye(2)
    still, quarter = torch.tensor([[1.0], [1.0]]), torch.tensor([[1.0], [0.0]])
    layer = made(torch.ones(2), 0 * eye, 2 * eye, 3 * eye)
    k, v = torch.tensor([[[2.0, 2.0], [2.0, -2.0]]]), torch.tensor([[[3.0, 3.0], [3.0, -3.0]]])
    yield Case((x, layer, still, 0 * still, 1), (k, v), "K is twice x here and V three times x; nothing is turned.")
    turned = torch.tensor([[[2.0, 2.0], [2.0, 2.0]]])
    yield Case(
        (x, layer, quarter, 1 - quarter, 1), (turned, v), "Position 1 makes a quarter turn: (a, b) becomes (-b, a)."
    )
    yield Case((5 * x, layer, still, 0 * still, 1), (k, v), "A row five times as large is the same after the norm.")
    heavy = made(torch.tensor([1.0, 10.0]), 0 * eye, 2 * eye, 3 * eye)
    scale = torch.tensor([1.0, 10.0])
    yield Case(
        (x, heavy, still, 0 * still, 1),
        (k * scale, v * scale),
        "The second value has ten times the weight in the norm.",
    )
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    for _ in range(8):
        tokens, kv_heads, group, half, hidden = rng.randrange(2, 6), rng.choice((1, 2, 3)), 3, 2, 8
        weights = [
            torch.randn(hidden, n * 2 * half, generator=generator) for n in (group * kv_heads, kv_heads, kv_heads)
        ]
        layer = made(torch.rand(hidden, generator=generator) + 0.5, *weights)
        x = torch.randn(tokens, hidden, generator=generator) * rng.choice((0.03, 1.0))
        angles = torch.rand(tokens, half, generator=generator) * 6
        cos, sin = angles.cos(), angles.sin()
        yield Case((x, layer, cos, sin, kv_heads), one_by_one(x, layer, cos, sin, *weights[1:]), origin="random")
    engine = real_engine()
    ids = engine.tokenizer.chat("Why is the sky blue?")
    with engine.record([0, 7]) as recording:
        engine.prefill(ids)
    cos, sin = (table[0, 0] for table in rotation(engine.model.frequencies, torch.arange(len(ids))[None]))
    for index in (0, 7):
        kept = recording[index]
        real = engine.model.layers[index]
        layer = SimpleNamespace(attention_norm=real.attention_norm, qkv=real.qkv)
        args = (kept.before, layer, cos, sin, engine.config.num_key_value_heads)
        yield Case(args, (kept.k, kept.v), origin="real model")


def made(norm: Tensor, q: Tensor, k: Tensor, v: Tensor) -> SimpleNamespace:
    """What the exercise needs of a layer."""
    return SimpleNamespace(attention_norm=norm, qkv=torch.cat((q, k, v), dim=1))


def one_by_one(
    x: Tensor, layer: SimpleNamespace, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """The same by another way: one position and one head at a time, each pair of values turned as a complex number."""
    half = cos.shape[1]
    k, v = (torch.empty(w.shape[1] // (2 * half), len(x), 2 * half) for w in (keys, values))
    for t, row in enumerate(x):
        row = row / row.square().mean().add(1e-5).sqrt() * layer.attention_norm
        for head in range(len(k)):
            columns = slice(head * 2 * half, (head + 1) * 2 * half)
            key = row @ keys[:, columns]
            turned = torch.complex(key[:half], key[half:]) * torch.complex(cos[t], sin[t])
            k[head, t] = torch.cat((turned.real, turned.imag))
            v[head, t] = row @ values[:, columns]
    return k, v


EXERCISE = Exercise(
    lesson="02",
    stub=STUB,
    hints=(
        "It is the first half of Step 3: norm, one product, split, turn. Q is not needed, and V is not turned. "
        "D is twice the width of cos.",
        "Of the columns of x @ layer.qkv, the last 2 · kv_heads · D are those of K and V. "
        "unflatten(-1, (kv_heads, -1)).transpose(0, 1) makes [kv_heads, T, D] of each.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(ALL_HEADS_AT_ONCE, HEAD_BY_HEAD),
)
