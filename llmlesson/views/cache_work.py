"""What the KV cache saves: the time of each token with it and without, and which work is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmlesson.views.markup import folded, key_over_value, label, svg, table
from llmlesson.views.style import paint

LEFT, TOP, WIDTH, HEIGHT, RIGHT = 62, 30, 560, 190, 150  # margins and size of the plot
# A pass over all tokens again is blue, one over a single token orange; told apart without colour, too.
STROKES = (("prompt", "", "square"), ("answer", "6 3", "circle"))


def token_times(seconds: Mapping[str, Sequence[float]]) -> str:
    """The seconds that each token of an answer took, a line for each of two ways; HTML with a table below.

    seconds: by name of the way, first the one that reads everything again for each token; as many numbers in each as
    there are tokens, at least two.
    Raises ValueError where the numbers of tokens differ.
    """
    counts = {len(times) for times in seconds.values()}
    if len(counts) != 1:
        raise ValueError(f"the ways have different numbers of tokens: {sorted(counts)}")
    tokens, most = counts.pop(), max(max(times) for times in seconds.values())
    x_step, bottom = WIDTH / (tokens - 1), TOP + HEIGHT
    parts = [label(LEFT, 14, "milliseconds for each token of the answer", 12, bold=True)]
    for tick in _ticks(1000 * most):
        y = bottom - HEIGHT * tick / (1000 * most)
        parts.append(f'<path d="M{LEFT} {y:.1f} H{LEFT + WIDTH}" stroke="currentColor" stroke-opacity=".2"/>')
        parts.append(label(LEFT - 8, y + 4, f"{tick:,}", 11, "end"))
    for token in sorted({1, tokens, *range(5, tokens - 2, 5)}):
        parts.append(label(LEFT + (token - 1) * x_step, bottom + 17, token, 11, "middle"))
    parts.append(label(LEFT + WIDTH / 2, bottom + 34, "token of the answer", 12, "middle"))
    ends = []
    for (name, times), (colour, dash, shape) in zip(seconds.items(), STROKES, strict=False):
        points = [(LEFT + i * x_step, bottom - HEIGHT * s / most) for i, s in enumerate(times)]
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path d="M{path}" {paint(stroke=colour, width=2, dash=dash)}/>')
        parts += [_mark(x, y, colour, shape) for x, y in points]
        ends.append((points[-1][1], name))
    for y, name in ends:
        parts.append(label(LEFT + WIDTH + 10, y + 4, name, 12, bold=True))
    spoken = "Milliseconds for each token. " + "; ".join(
        f"{name}: first {1000 * times[0]:,.0f}, last {1000 * times[-1]:,.0f}" for name, times in seconds.items()
    )
    rows = [(i + 1, *(f"{1000 * times[i]:,.0f}" for times in seconds.values())) for i in range(tokens)]
    picture = svg(LEFT + WIDTH + RIGHT, bottom + 42, spoken, parts)
    return picture + folded("The same as a table, in milliseconds", table(["token", *seconds], rows))


CELL, GAP, HEAD = 24, 96, 64  # a cell, the room between the two halves, the room above them


def work_left(prompt: int, new: int) -> str:
    """Which positions are worked on for each token of a small answer, without the cache and with it; SVG.

    A row for each of `new` tokens of the answer, behind a prompt of `prompt` tokens.
    """
    columns = prompt + new - 1
    half = columns * CELL
    width, height = 2 * half + GAP + 190, HEAD + new * CELL + 62
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


def _mark(x: float, y: float, colour: str, shape: str) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {paint(colour)}/>'
    return f'<rect x="{x - 2.5:.1f}" y="{y - 2.5:.1f}" width="5" height="5" {paint(colour)}/>'


def _ticks(most: float) -> list[int]:
    """Three to six round numbers from 0 to `most`."""
    step = next(m * 10**e for e in range(9) for m in (1, 2, 5) if most / (m * 10**e) < 6)
    return list(range(0, int(most) + 1, step))
