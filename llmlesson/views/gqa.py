"""Which query head reads which key-value head, and what sharing them saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmlesson.sizing.units import both_units
from llmlesson.views.markup import BLUE, GREEN, PURPLE, VERMILLION, folded, label, note, svg, table, title

# Groups by the colour and by the number of their KV head; vermillion is kept for what is wrong.
GROUP_COLOURS = (BLUE, GREEN, PURPLE)
BOX, GAP, TOP, REACH = 26, 8, 30, 120


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
    """Query heads above, KV heads below, a line from each query head to the KV head that it reads. SVG.

    A wrong line is vermillion, dashed and ends in a cross; its query head says which KV head would be right.
    """
    width = 100 + len(readings) * (BOX + GAP)
    below = TOP + BOX + REACH
    places = [100 + (index + 0.5) * (width - 100) / kv_heads for index in range(kv_heads)]  # middles of the KV heads
    parts = [label(4, TOP + 17, "query heads"), label(4, below + 17, "KV heads")]
    for reading in readings:
        parts += _query_head(reading, places[reading.reads], below)
    for index, middle in enumerate(places):
        colour = _colour(index)
        parts.append(
            f'<rect x="{middle - BOX / 2:.1f}" y="{below}" width="{BOX}" height="{BOX}" rx="4" fill="{colour}" '
            f'fill-opacity=".25" stroke="{colour}" stroke-width="2"/>'
            + label(middle, below + 17, index, 12, "middle", bold=True)
        )
    return svg(width + 4, below + BOX + 8, _spoken(readings, kv_heads), parts)


def _query_head(reading: Reading, target: float, below: float) -> list[str]:
    left = 100 + reading.head * (BOX + GAP)
    middle, bottom = left + BOX / 2, TOP + BOX
    colour = VERMILLION if reading.wrong else _colour(reading.reads)
    dash = ' stroke-dasharray="5 4"' if reading.wrong else ""
    says = f"query head {reading.head} reads KV head {reading.reads}"
    if reading.wrong:
        says += f", and its weights were trained with KV head {reading.trained}"
    parts = [
        f'<g><title>{says}</title><path d="M{middle:.1f} {bottom} L{target:.1f} {below}" stroke="{colour}" '
        f'stroke-width="2" fill="none"{dash}/>'
        f'<rect x="{left:.1f}" y="{TOP}" width="{BOX}" height="{BOX}" rx="4" fill="{colour}" fill-opacity=".25" '
        f'stroke="{colour}" stroke-width="2"{dash}/></g>',
        label(middle, TOP + 17, reading.head, 12, "middle"),
    ]
    if reading.wrong:
        parts.append(label(middle, TOP - 8, f"✗→{reading.trained}", 11, "middle"))
    return parts


def readings_table(readings: Sequence[Reading]) -> str:
    """The same to read: folded, since it has a row for each query head."""
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
    """What the order of repeating does to the heads, in words."""
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


def _colour(kv_head: int) -> str:
    return GROUP_COLOURS[kv_head % len(GROUP_COLOURS)]


def _spoken(readings: Sequence[Reading], kv_heads: int) -> str:
    wrong = [r for r in readings if r.wrong]
    said = f"{len(readings)} query heads read {kv_heads} KV heads, {len(readings) // kv_heads} each."
    if wrong:
        which = ", ".join(str(r.head) for r in wrong[:20]) + (", …" if len(wrong) > 20 else "")
        said += f" {len(wrong)} query heads read the wrong one: {which}."
    return said
