"""What a token leaves behind: how much in one layer, what MLA keeps instead, and for how long with windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt

from llmlesson.sizing import KVCacheSize
from llmlesson.views.markup import band, key_over_value, label, svg
from llmlesson.views.style import paint

WIDTH = 720


@dataclass(frozen=True)
class Kept:
    """How many numbers one token leaves in one layer's cache, and why so many."""

    name: str
    kind: str  # "MHA" | "GQA" | "MQA" | "MLA"
    numbers: int
    why: str


def kept_bars(rows: Sequence[Kept]) -> str:
    """SVG: one bar per row, K over V, all to one scale; a latent, which is neither, has the cache's colour."""
    left, row_height, longest = 150, 58, max(row.numbers for row in rows)
    parts: list[str] = []
    for index, row in enumerate(rows):
        top = index * row_height
        width = (WIDTH - left - 8) * row.numbers / longest
        place = (left, top + 8, max(width, 2), 18)
        parts += [
            label(4, top + 21, row.kind, 14, bold=True),
            label(4, top + 38, row.name, 12),
            band(*place, "cache") if row.kind == "MLA" else key_over_value(*place),
            label(left, top + 42, f"{row.numbers:,} numbers: {row.why}", 12),
        ]
    return svg(WIDTH, len(rows) * row_height, f"What one token leaves in one layer. {kept_bars_text(rows)}", parts)


def kept_bars_text(rows: Sequence[Kept]) -> str:
    """`kept_bars` as text: one line per row."""
    return "\n".join(f"{row.kind}, {row.name}: {row.numbers:,} numbers ({row.why})." for row in rows)


def latent_picture(hidden: int, latent: int, position: int, heads: int, unpacked: int) -> str:
    """SVG: what MLA does with one token in one layer. All areas are to scale: a pixel is a number.

    hidden: numbers of the token's vector. latent, position: of what is kept, the latent and the part of the key that
    knows the position. unpacked: of the keys and values of all `heads`, which the latent holds and nobody keeps.
    """
    sides = [sqrt(count) for count in (hidden, latent, unpacked)]
    gap, middle = (WIDTH - sum(sides) - 20) / 2, 34 + max(sides) / 2
    starts = [10.0, 10 + sides[0] + gap, WIDTH - 10 - sides[2]]
    says = [
        (10.0, "start", "the token’s vector", f"{hidden:,} numbers, gone after the layer"),
        (starts[1] + sides[1] / 2, "middle", "the latent, and the position", f"{latent} + {position} numbers, kept"),
        (WIDTH - 10.0, "end", f"K and V of {heads} heads", f"{unpacked:,} numbers, never kept"),
    ]
    forms = ("token", "latent", "unpacked")
    parts = [_area(form, x, middle - side / 2, side) for form, x, side in zip(forms, starts, sides, strict=True)]
    parts.append(_area("latent", starts[1] + sides[1] + 3, middle + sides[1] / 2 - sqrt(position), sqrt(position)))
    for (at, anchor, name, fate), side in zip(says, sides, strict=True):
        top = middle - side / 2
        parts += [label(at, top - 20, name, 13, anchor, bold=True), label(at, top - 5, fate, 12, anchor)]
    arrows = [("a learned matrix", "packs it"), ("two more can unpack it,", "whenever needed")]
    for x, side, lines in zip(starts, sides, arrows, strict=False):
        start, end = x + side + 20, x + side + gap - 14
        parts.append(
            f'<path d="M{start:.1f} {middle:.1f} L{end:.1f} {middle:.1f} m-8 -5 l8 5 l-8 5" '
            f"{paint(stroke='wait', width=2)}/>"
        )
        parts += [label((start + end) / 2, middle + 20 + 16 * i, line, 12, "middle") for i, line in enumerate(lines)]
    spoken = (
        f"A token's vector of {hidden:,} numbers is packed into a latent of {latent} numbers, which are kept, with "
        f"{position} more for the position. Keys and values of {heads} heads, {unpacked:,} numbers, can be unpacked "
        "from the latent whenever needed, and are never kept."
    )
    return svg(WIDTH, middle + max(sides) / 2 + 6, spoken, parts)


def _area(form: str, x: float, y: float, side: float) -> str:
    """A square: the token's vector, the latent, or K over V that are not there."""
    if form == "latent":
        return band(x, y, side, side, "cache")
    if form == "token":
        look = paint("prompt-tint", "prompt", 1.5)
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" {look}/>'
    halves = ((y, "key"), (y + side / 2, "value"))
    return "".join(
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{side:.1f}" height="{side / 2:.1f}" '
        f"{paint(stroke=name, width=1.5, dash='2 3')}/>"
        for top, name in halves
    )


def window_picture(size: KVCacheSize) -> str:
    """SVG: a line for each layer, over the context from left to right: solid where keys and values are still kept."""
    left, right, top, thick = 92, 8, 24, 4
    height, bottom = thick * len(size.per_layer), top + thick * len(size.per_layer)
    per_token = (WIDTH - left - right) / size.tokens
    outline = paint(stroke="wait", width=1.5, dash="2 3")
    parts = [
        label(left, 16, "first token", 12),
        label(WIDTH - right, 16, "newest token", 12, "end"),
        f'<rect x="{left}" y="{top}" width="{WIDTH - left - right}" height="{height}" {outline}/>',
        label(4, top + 10, "layer 0", 12),
        label(4, bottom, f"layer {len(size.per_layer) - 1}", 12),
    ]
    for layer in size.per_layer:
        width = layer.cells * per_token
        parts.append(band(WIDTH - right - width, top + thick * layer.index, width, thick - 1, "cache"))
    lines = window_picture_text(size).splitlines()
    parts += [label(left, bottom + 20 + 17 * index, line, 12) for index, line in enumerate(lines)]
    return svg(WIDTH, bottom + 20 + 17 * len(lines), window_picture_text(size), parts)


def window_picture_text(size: KVCacheSize) -> str:
    """`window_picture` as text: one line for each reach, the longest first."""
    reaches = sorted((layer.cells for layer in size.per_layer), reverse=True)
    lines = []
    for cells, layers in groupby(reaches):
        count = len(list(layers))
        kept = f"all {cells:,} tokens" if cells == size.tokens else f"the last {cells:,} tokens"
        lines.append(f"{count} layer{' keeps' if count == 1 else 's keep'} {kept}")
    return "\n".join(lines)
