"""Which query head reads which key-value head, and what sharing them saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmlesson.sizing.units import both_units
from llmlesson.views.markup import folded, key_over_value, label, note, svg, table, title
from llmlesson.views.style import paint

LEFT, BOX, GAP, TOP, REACH = 112, 26, 8, 44, 110


@dataclass(frozen=True)
class Reading:
    """One query head: the KV head that it reads, and the one that its weights were trained with."""

    head: int
    reads: int
    trained: int

    @property
    def wrong(self) -> bool:
        return self.reads != self.trained


@dataclass(frozen=True)
class Sharing:
    """What one number of KV heads costs. Bytes are exact, for one sequence."""

    kv_heads: int
    group: int  # query heads that share a KV head
    name: str  # "MHA" | "GQA" | "MQA"
    bytes_per_token: int
    nbytes: int  # of the cache; a decode step reads all of it, once
    own: bool  # the model's own number


def heads_picture(readings: Sequence[Reading], kv_heads: int) -> str:
    """Query heads above, KV heads below, a line from each query head to the KV head that it reads, and the cost. SVG.

    A wrong line is red, dashed and marked with a cross; its query head says which KV head would be right.
    """
    width = LEFT + len(readings) * (BOX + GAP)
    below = TOP + BOX + REACH
    places = [LEFT + (index + 0.5) * (width - LEFT) / kv_heads for index in range(kv_heads)]  # middles of the KV heads
    parts = [label(4, TOP + 17, "query heads"), label(4, below + 17, "KV heads")]
    for reading in readings:
        parts += _query_head(reading, places[reading.reads], below)
    for index, middle in enumerate(places):
        parts.append(key_over_value(middle - BOX / 2, below, BOX, BOX))
        parts.append(label(middle, below + BOX + 15, index, 12, "middle", bold=True))
    parts += _cost(len(readings), kv_heads, below + BOX + 34)
    return svg(width, below + BOX + 34 + 44, _spoken(readings, kv_heads), parts)


def _cost(heads: int, kv_heads: int, top: float) -> list[str]:
    """What one token leaves in each layer: a cell of K over V per KV head, with places for as many as query heads."""
    parts = [label(4, top + 17, "one token keeps")]
    for index in range(heads):
        x = LEFT + index * BOX
        if index < kv_heads:
            parts.append(key_over_value(x, top, BOX - 1, BOX))
        else:
            empty = paint(stroke="wait", width=1.5, dash="2 3")
            parts.append(f'<rect x="{x + 1}" y="{top + 1}" width="{BOX - 3}" height="{BOX - 2}" {empty}/>')
    says = "K and V of every head" if kv_heads == heads else f"{kv_heads} of {heads} cells"
    parts.append(label(LEFT, top + BOX + 15, f"{says}, in each layer", 12))
    return parts


def _query_head(reading: Reading, target: float, below: float) -> list[str]:
    left = LEFT + reading.head * (BOX + GAP)
    middle, bottom = left + BOX / 2, TOP + BOX
    colour = "broken" if reading.wrong else "query"
    line = paint(stroke=colour, width=2, dash="5 4" if reading.wrong else "")
    shape = paint(stroke=colour, width=2, dash="5 4") if reading.wrong else paint(colour)
    says = f"query head {reading.head} reads KV head {reading.reads}"
    if reading.wrong:
        says += f", and its weights were trained with KV head {reading.trained}"
    half = BOX / 2
    parts = [
        f'<g><title>{says}</title><path d="M{middle:.1f} {bottom} L{target:.1f} {below}" {line}/>'
        f'<path d="M{middle:.1f} {TOP}l{half:g} {half:g}l{-half:g} {half:g}l{-half:g} {-half:g}z" {shape}/></g>',
        label(middle, TOP + 17, "Q", 11, "middle", bold=True, colour=colour if reading.wrong else "paper"),
        label(middle, TOP - 6, reading.head, 12, "middle"),
    ]
    if reading.wrong:
        parts.append(label(middle, TOP - 22, f"✗→{reading.trained}", 11, "middle", colour="broken"))
    return parts


def readings_table(readings: Sequence[Reading]) -> str:
    """The same as text, folded, because it has a row for each query head."""
    rows = [
        (f"query head {r.head}", f"KV head {r.reads}", f"KV head {r.trained}", "✗ wrong" if r.wrong else "✓ right")
        for r in readings
    ]
    return folded("The same as a table", table(("", "reads", "was trained with", ""), rows))


def sharing_table(sharings: Sequence[Sharing], chosen: int, tokens: int) -> str:
    """Every possible number of KV heads: size of the cache and reads for each new token."""
    rows = [
        (
            f"{'▶ ' if s.kv_heads == chosen else ''}{s.kv_heads} ({s.name}{', the model’s own' if s.own else ''})",
            f"{s.bytes_per_token:,}",
            f"{s.nbytes:,}",
            both_units(s.nbytes),
            f"{s.group} query head{'s' if s.group > 1 else ''}",
        )
        for s in sharings
    ]
    head = (
        "KV heads",
        "bytes a token",
        f"cache of {tokens:,} tokens, in bytes: kept, and read for each new token",
        "the same",
        "each byte read serves",
    )
    at = next(index for index, s in enumerate(sharings) if s.kv_heads == chosen)
    return title("What each number of KV heads costs") + table(head, rows, bold=at)


def order_note(readings: Sequence[Reading], kv_heads: int, order: str) -> str:
    """What the order of repetition does to the heads, in words."""
    group, wrong = len(readings) // kv_heads, sum(r.wrong for r in readings)
    if order == "interleave":
        return note(
            f"repeat_interleave: KV head k stands {group} times in a row, so query head h reads KV head h // {group}. "
            "So the weights were trained."
        )
    says = (
        f"repeat (tile): all KV heads stand in order, {group} times over, so query head h reads KV head h % {kv_heads}."
    )
    if not wrong:
        return note(f"{says} With this number of KV heads that is the same: nothing shows the mistake.")
    return note(
        f"{says} All shapes fit and nothing fails, but {wrong} of {len(readings)} query heads (✗, dashed) read keys "
        "and values that they were not trained with; ✗→ names the right KV head."
    )


def _spoken(readings: Sequence[Reading], kv_heads: int) -> str:
    wrong = [r for r in readings if r.wrong]
    said = f"{len(readings)} query heads read {kv_heads} KV heads, {len(readings) // kv_heads} each."
    if wrong:
        which = ", ".join(str(r.head) for r in wrong[:20]) + (", …" if len(wrong) > 20 else "")
        said += f" {len(wrong)} query heads read the wrong one: {which}."
    return said
