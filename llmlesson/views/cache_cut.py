"""What may be done with a KV cache, and what of it is right afterwards."""

from __future__ import annotations

from llmlesson.views.markup import key_over_value, label, svg
from llmlesson.views.style import paint

CELL, ROW, LEFT, TOP, SAYS = 26, 46, 150, 34, 350  # a position, a row of them, the margins, the text behind a row


def cache_cut(kept: int, new: int, cut: int) -> str:
    """A row of positions for each way to go on: read more, cut at the end, cut at the front; SVG.

    kept: positions in the cache; new: those that the next turn adds; cut: those that are cut off. Raises ValueError
    unless 0 < cut < kept and new > 0.
    """
    if not 0 < cut < kept or new < 1:
        raise ValueError(f"cut is {cut} of {kept} positions, and {new} are new: that makes no picture")
    right = LEFT + (kept + new) * CELL + 16
    rows = {
        "the next turn": ("cache " * kept + "new " * new, "right: only what is new is read"),
        "cut at the end": ("cache " * (kept - cut) + "gone " * cut, "right: nothing flows backwards"),
        "cut at the front": (
            "gone " * cut + "wrong " * (kept - cut),
            "✗ wrong from layer 1 on: they know what was cut",
        ),
    }
    parts = [label(LEFT, 16, "positions: key above, value below", 12)]
    for row, (name, (cells, says)) in enumerate(rows.items()):
        y = TOP + row * ROW
        parts.append(label(LEFT - 12, y + 18, name, 12, "end", bold=True))
        parts += [_cell(LEFT + column * CELL, y, kind) for column, kind in enumerate(cells.split())]
        parts.append(label(right, y + 18, says, 12, colour="broken" if says.startswith("✗") else ""))
    spoken = (
        f"A cache of {kept} positions. The next turn adds {new}, and only these are read. Cut at the end by {cut}, the "
        f"{kept - cut} that are left are right. Cut at the front by {cut}, the {kept - cut} that are left are wrong "
        "from layer 1 on."
    )
    return svg(right + SAYS, TOP + len(rows) * ROW, spoken, parts)


def _cell(x: float, y: float, kind: str) -> str:
    size, height = CELL - 4, 28
    if kind == "gone":
        return f'<rect x="{x + 1}" y="{y}" width="{size}" height="{height}" {paint(stroke="wait", dash="1.5 3")}/>'
    cell = key_over_value(x + 1, y, size, height, 0.7)
    if kind == "cache":
        return cell
    look = paint(stroke="answer", width=2) if kind == "new" else paint(stroke="broken", width=2, dash="4 3")
    return f'{cell}<rect x="{x}" y="{y - 1}" width="{size + 2}" height="{height + 2}" {look}/>'
