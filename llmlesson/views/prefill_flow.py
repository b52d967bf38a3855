"""Prefill in one picture: what goes in, what is done with it, what is left."""

from __future__ import annotations

from llmlesson.views.markup import label, svg
from llmlesson.views.style import paint
from llmlesson.views.text import visible

TOP, TALL, ARROW = 40, 148, 24  # upper edge and height of the boxes, room between two of them
MOVES = ("norm", "Q, K, V", "turn Q and K", "causal attention", "norm", "MLP")  # of a layer


def prefill_flow(
    tokens: int, hidden: int, layers: int, kv_heads: int, head_dim: int, cache_nbytes: int, vocabulary: int, first: str
) -> str:
    """The pass over a prompt, left to right, and under it the cache that it fills. SVG.

    first: the text of the first output token.
    """
    boxes = (
        (104, "prompt", "ids", [f"{tokens} tokens"]),
        (118, "wait", "embedding", [f"{tokens} × {hidden}", "a row for", "each token"]),
        (190, "prompt", f"{layers} layers", list(MOVES)),
        (132, "wait", "last row", [f"1 × {hidden}", f"of {tokens} × {hidden}", "the others are", "not needed"]),
        (136, "wait", "norm and head", [f"{vocabulary:,}", "logits"]),
        (104, "answer", "first token", [f"“{visible(first, 10)}”"]),
    )
    parts, left = [label(4, 18, "one pass, all positions at once", 13)], 4
    for index, (width, colour, name, lines) in enumerate(boxes):
        if index:
            parts.append(_arrow(left - ARROW, TOP + TALL / 2, left))
        parts += _box(left, TOP, width, TALL, colour, name, lines)
        if name.endswith("layers"):
            middle, edge = left + width / 2, left
        left += width + ARROW
    below = TOP + TALL + 34
    parts.append(_down(middle, TOP + TALL, below))
    parts.append(label(middle + 10, TOP + TALL + 21, "K and V of every position", 12))
    cache = [
        f"{layers} layers × (K and V) × {kv_heads} heads × {tokens} positions × {head_dim} values",
        f"{cache_nbytes:,} bytes, kept for every further token",
    ]
    parts += _box(edge - 130, below, 450, 72, "cache", "KV cache", cache)
    spoken = (
        f"Prefill. {tokens} ids become {tokens} rows of {hidden} values, which go together through {layers} layers: "
        f"{', '.join(MOVES)}. Each layer leaves K and V of every position in the KV cache, {cache_nbytes:,} bytes. "
        f"The last row gives {vocabulary:,} logits, and these the first token, “{first}”."
    )
    return svg(left - ARROW + 4, below + 78, spoken, parts)


def _box(left: float, top: float, width: float, tall: float, colour: str, name: str, lines: list[str]) -> list[str]:
    middle = left + width / 2
    return [
        f'<rect x="{left:g}" y="{top:g}" width="{width}" height="{tall:g}" rx="{0 if colour == "cache" else 8}" '
        f"{paint('panel' if colour == 'wait' else f'{colour}-tint', colour, 2)}/>",
        label(middle, top + 22, name, 14, "middle", bold=True),
        *(label(middle, top + 43 + 18 * i, line, 12, "middle") for i, line in enumerate(lines)),
    ]


def _arrow(start: float, y: float, end: float) -> str:
    return (
        f'<path d="M{start + 3:g} {y:g}H{end - 9:g}" stroke="currentColor" stroke-width="1.5"/>'
        f'<path d="M{end - 10:g} {y - 4.5:g}v9l8 -4.5z" fill="currentColor"/>'
    )


def _down(x: float, start: float, end: float) -> str:
    return (
        f'<path d="M{x:g} {start + 2:g}V{end - 9:g}" stroke="currentColor" stroke-width="1.5"/>'
        f'<path d="M{x - 4.5:g} {end - 10:g}h9l-4.5 8z" fill="currentColor"/>'
    )
