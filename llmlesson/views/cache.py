"""What a KV cache holds: its values as a heatmap, its bytes by layer, what the last step changed."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.views.markup import folded, note, svg, table, title
from llmlesson.views.markup import label as letters
from llmlesson.views.style import paint
from llmlesson.views.text import visible

MOST_CELLS = 2048  # of a heatmap: each takes about 60 bytes to send
COLUMN, ROW, LEFT, HEAD = 20, 8, 34, 92  # width of a position, height of a value, room for names
NEGATIVE = 2  # height of a negative value's cell: it looks like a minus
HUES = {"K": "key", "V": "value"}


def columns_that_fit(head_dim: int) -> int:
    """Positions that one heatmap shows."""
    return max(4, MOST_CELLS // head_dim)


def heatmap(
    values: Sequence[Sequence[float]],
    first: int,
    texts: Sequence[str],
    new: Sequence[int],
    label: str,
    kind: str = "K",
    scale: float | None = None,
) -> str:
    """A column for each position, its values from top to bottom; HTML. Each value's number shows on hover.

    values: [positions, head_dim]; texts: their tokens; first: the index of the first of them; new: the indices that
    came with the last step; label: what is shown, such as "K of layer 0, head 1". kind: "K" or "V". scale: the size
    at which the colour is full; None: the largest one shown.
    """
    full = scale or max((abs(v) for column in values for v in column), default=0.0) or 1.0
    dims = len(values[0])
    width, height = LEFT + len(values) * COLUMN + 40, HEAD + dims * ROW + 22
    positive: list[str] = []
    negative: list[str] = []
    parts: list[str] = []
    for i, (text, column) in enumerate(zip(texts, values, strict=True)):
        x, index = LEFT + i * COLUMN, first + i
        for d, value in enumerate(column):
            cell = (
                f"<path d='M{x + 1} {HEAD + d * ROW + ROW // 2}h{COLUMN - 2}' opacity='{_opacity(value / full):.2g}'>"
                f"<title>{value:.3g}</title></path>"
            )
            (positive if value >= 0 else negative).append(cell)
        parts.append(_letters(x + COLUMN * 0.7, HEAD - 6, visible(text, 12)))
        if index % 5 == 0 or i == 0:
            parts.append(_number(x + COLUMN / 2, HEAD + dims * ROW + 14, index))
        if index in new:
            parts.append(
                f'<rect x="{x}" y="{HEAD - 1}" width="{COLUMN}" height="{dims * ROW + 2}" '
                f"{paint(stroke='answer', width=2)}/>"
            )
    parts += [_number(LEFT - 6, HEAD + d * ROW + ROW, d, "end") for d in range(0, dims, 8)]
    hue = HUES[kind]
    cells = [
        f"<g {paint(stroke=hue, width=ROW - 1)}>{''.join(positive)}</g>",
        f"<g {paint(stroke=hue, width=NEGATIVE)}>{''.join(negative)}</g>",
    ]
    spoken = f"{label}: {len(values)} positions of {dims} values. The values of the newest are below as numbers."
    framed = " Framed: new in this step." if new else ""
    return (
        title(label)
        + svg(width, height, spoken, [*cells, *parts])
        + note(
            f"A column for each position, its {dims} values from top to bottom; point at one for its number. A full "
            f"cell is positive, a thin one negative. Full colour: {full:.3g} and beyond.{framed}"
        )
    )


def numbers(values: Sequence[float], name: str) -> str:
    """One position's vector as text, to read or to hear; HTML, folded."""
    return folded(f"{name}, as numbers", note(", ".join(f"{value:.4g}" for value in values)))


def sizes(formula: str, predicted: int, measured: int, layers: Sequence[tuple[int, int]]) -> str:
    """Bytes in all and by layer, as the config predicts and as the tensors have them; HTML.

    formula: the arithmetic of `predicted`. layers: predicted and measured bytes of each.
    """
    total = [
        ("predicted from the config", f"{formula} =", f"{predicted:,}"),
        ("measured on the tensors", _mark(predicted, measured), f"{measured:,}"),
    ]
    rows = [(index, f"{a:,}", f"{b:,}", _mark(a, b)) for index, (a, b) in enumerate(layers)]
    return (
        title("Bytes in the cache")
        + table(["", "", "bytes"], total)
        + folded("By layer", table(["layer", "predicted", "measured", ""], rows))
    )


def change(name: str, before: int, after: int, nbytes: int, kept: bool) -> str:
    """What the last step did to the cache; HTML.

    name: of the step; before, after: positions; nbytes: the difference; kept: whether all that was there before is
    the same, bit for bit.
    """
    if after > before:
        what = f"{after - before:,} position{'s' * (after - before != 1)} added, {nbytes:,} bytes"
    else:
        what = f"{before - after:,} position{'s' * (before - after != 1)} dropped, {-nbytes:,} bytes"
    older = f"the {min(before, after):,} older positions: "
    older += "unchanged ✓ (compared bit for bit in all layers)" if kept else "changed ✗"
    older = older if min(before, after) else "nothing was there before"
    return title(f"{name}: {what}") + note(f"{older[0].upper()}{older[1:]}.")


def head_map(strength: Sequence[Sequence[float]], shown: tuple[int, int], name: str, kind: str = "K") -> str:
    """How strong the values of each layer (column) and head (row) are, with the shown one framed; HTML.

    strength: [layers][heads], not negative. shown: layer and head. name: of the quantity. kind: "K" or "V".
    """
    most = max(max(row) for row in strength) or 1.0
    layers, heads = len(strength), len(strength[0])
    left, top = 56, 22
    parts = [letters(left - 8, 14, "layer", 11, "end")]
    parts += [letters(left + (i + 0.5) * COLUMN, 14, i, 11, "middle") for i in range(layers)]
    for h in range(heads):
        parts.append(letters(left - 8, top + h * COLUMN + 14, f"head {h}", 11, "end"))
        for i in range(layers):
            x, y = left + i * COLUMN, top + h * COLUMN
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{COLUMN - 2}" height="{COLUMN - 2}" '
                f"{paint(HUES[kind], opacity=_opacity(strength[i][h] / most))}>"
                f"<title>layer {i}, head {h}: {strength[i][h]:.3g}</title></rect>"
            )
    x, y = left + shown[0] * COLUMN, top + shown[1] * COLUMN
    parts.append(f'<rect x="{x}" y="{y}" width="{COLUMN}" height="{COLUMN}" {paint(stroke="ink", width=2)}/>')
    spoken = (
        f"{name}, by layer and head; the strongest is {most:.3g}, the one shown {strength[shown[0]][shown[1]]:.3g}."
    )
    return title(f"All layers and heads: {name}, up to {most:.3g}; the framed one is shown below") + svg(
        left + layers * COLUMN + 10, top + heads * COLUMN + 6, spoken, parts
    )


def _letters(x: float, y: float, text: str) -> str:
    return letters(x, y, text, 11, mono=True, turn=-60)


def _number(x: float, y: float, number: int, anchor: str = "middle") -> str:
    return letters(x, y, number, 10, anchor)


def _opacity(share: float) -> float:
    """The square root lets small values show beside the few large ones."""
    return min(abs(share), 1.0) ** 0.5


def _mark(predicted: int, measured: int) -> str:
    return "✓ equal" if predicted == measured else "✗ not equal"
