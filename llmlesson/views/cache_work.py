"""What the KV cache saves: which work is left for each token of an answer."""

from __future__ import annotations

from llmlesson.views.markup import key_over_value, label, svg
from llmlesson.views.style import paint

CELL, GAP, HEAD = 24, 96, 64  # a cell, the room between the two halves, the room above them
LEGEND = 880  # its width


def work_left(prompt: int, new: int) -> str:
    """Which positions are worked on for each token of a small answer, without the cache and with it; SVG.

    A row for each of `new` tokens of the answer, behind a prompt of `prompt` tokens.
    """
    columns = prompt + new - 1
    half = columns * CELL
    width, height = max(2 * half + GAP + 190, LEGEND), HEAD + new * CELL + 62
    parts = []
    for side, name in enumerate(("without the cache", "with the cache")):
        left = 92 + side * (half + GAP)
        parts.append(label(left, 16, name, 14, bold=True))
        parts.append(label(left, 36, "positions: the prompt, then the answer", 11))
        for row in range(new):
            y = HEAD + row * CELL
            if not side:
                parts.append(label(left - 10, y + 16, f"token {row + 1}", 12, "end"))
            for column in range(prompt + row):
                newest = side and row > 0 and column == prompt + row - 1
                kind = "answer" if newest else "prompt" if not side or row == 0 else "cache"
                parts.append(_cell(left + column * CELL, y, kind))
        x = left + prompt * CELL - 1
        parts.append(
            f'<path d="M{x} {HEAD - 12} V{HEAD + new * CELL + 4}" stroke="currentColor" stroke-dasharray="3 3"/>'
        )
    y = height - 24
    for x, kind, text in (
        (92, "prompt", "goes through all layers, together with its row"),
        (432, "answer", "goes through all layers, alone"),
        (672, "cache", "only its K and V are read"),
    ):
        parts += [_cell(x, y - 16, kind), label(x + CELL + 6, y, text, 12)]
    without = sum(prompt + i for i in range(new))
    spoken = (
        f"A prompt of {prompt} and an answer of {new} tokens. Without the cache {without} positions go through the "
        f"layers, a whole row for each token. With it, {columns}: the prompt once, then one for each token, and the K "
        f"and V of {sum(prompt + i - 1 for i in range(1, new))} older positions are read."
    )
    return svg(width, height, spoken, parts)


def _cell(x: float, y: float, kind: str) -> str:
    """A position that is read together with others ("prompt") or alone ("answer"), or that is in the "cache"."""
    size = CELL - 2
    if kind == "cache":
        return key_over_value(x, y + 4, size, size - 8, 0.7)
    tall = 17 if kind == "prompt" else 9
    return f'<rect x="{x}" y="{y + (size - tall) / 2:g}" width="{size}" height="{tall}" {paint(kind)}/>'
