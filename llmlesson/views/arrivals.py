"""A raster of arrivals: a row for each request, a tick for each piece of text that reached its client."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llmlesson.views.markup import folded, label, note, svg, table
from llmlesson.views.seconds import duration, ticks
from llmlesson.views.style import paint, styled
from llmlesson.views.text import escape

if TYPE_CHECKING:
    from llmlesson.server.exchange import Exchange

LABEL, TIME, RIGHT, AXIS = 116, 820, 60, 44  # widths of the columns; height of the head
ROW, TALL = 19, 700  # height of a row; of all rows together, where they are too many for that


def raster(exchanges: Sequence[Exchange], names: Sequence[str] = ()) -> str:
    """When each piece of text arrived. HTML: an SVG, and the same as a table.

    A dotted outline is the time that a client waited for its first text, each tick an event with text, and ✗ the end
    of an answer that isn't whole. names: of the rows; they are numbered if there are none. Raises ValueError without
    requests, and where the names don't fit.
    """
    if not exchanges or len(names) not in (0, len(exchanges)):
        raise ValueError(f"{len(exchanges)} requests, {len(names)} names")
    names = names or [f"request {number}" for number in range(1, 1 + len(exchanges))]
    start = min(one.sent for one in exchanges)
    total = max(one.ended for one in exchanges) - start
    row = min(ROW, TALL / len(exchanges))
    height = AXIS + row * len(exchanges) + 6
    scale = TIME / (total or 1)
    parts = []
    for tick in ticks(total):
        x = LABEL + tick * scale
        parts.append(f'<path d="M{x:.1f} {AXIS - 6} V{height - 4:.1f}" {paint(stroke="line")}/>')
        parts.append(label(x, AXIS - 10, duration(tick), 11, "middle"))
    every = math.ceil(12 / row)  # where rows are low, some have no name
    for index, (one, name) in enumerate(zip(exchanges, names, strict=True)):
        y = AXIS + row * index
        if index % every == 0:
            parts.append(label(LABEL - 10, y + row / 2 + 4, name, 12, "end"))
        parts += _row(one, y + row * 0.15, row * 0.7, lambda seconds: LABEL + (seconds - start) * scale)
    first = [one.ttft for one in exchanges if one.arrivals]
    broken = sum(bool(one.error) for one in exchanges)
    pieces = sum(len(one.arrivals) for one in exchanges)
    spoken = (
        f"{len(exchanges)} requests in {duration(total)}; {pieces} pieces of text arrived. "
        + (f"Waiting for the first took {duration(min(first))} to {duration(max(first))}. " if first else "")
        + (f"{broken} of the answers are not whole." if broken else "All answers are whole.")
    )
    rows = [
        (name, duration(one.sent - start), duration(one.ttft) if one.arrivals else "–", len(one.arrivals), one.error)
        for name, one in zip(names, exchanges, strict=True)
    ]
    return styled(
        svg(LABEL + TIME + RIGHT, height, spoken, parts)
        + note(
            "Measured by the clients. Dotted: waits for its first text. A tick: a piece of text arrived."
            + (" ✗: the answer isn't whole." if broken else "")
        )
        + folded("The same as a table", table(("", "sent at", "TTFT", "pieces", "error"), rows))
    )


def page(exchanges: Sequence[Exchange]) -> str:
    """The raster as a whole HTML page."""
    title = escape("llmlesson loadtest: when each piece of text arrived")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        "<style>:root { color-scheme: light dark; font-family: system-ui, sans-serif }</style></head>"
        f"<body><h1>{title}</h1>{raster(exchanges)}</body></html>\n"
    )


def _row(one: Exchange, y: float, tall: float, x_of: Callable[[float], float]) -> list[str]:
    sent = x_of(one.sent)
    waited = x_of(one.arrivals[0] if one.arrivals else one.ended) - sent
    outline = paint(stroke="wait", width=1.5, dash="1.5 2.5")
    parts = [f'<rect x="{sent:.1f}" y="{y:.1f}" width="{max(waited, 1):.1f}" height="{tall:.1f}" {outline}/>']
    if one.arrivals:
        marks = "".join(f"M{x_of(at):.1f} {y:.1f}v{tall:.1f}" for at in one.arrivals)
        parts.append(f'<path d="{marks}" {paint(stroke="answer", width=1.5)}/>')
    if one.error:
        parts.append(label(x_of(one.ended) + 5, y + tall / 2 + 4, "✗", 12, bold=True, colour="broken"))
    return parts
