"""Tokens as numbered, coloured chips, and what they count up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from llmlesson.views.request import BLUE, GREEN, GREY, ORANGE, PURPLE
from llmlesson.views.text import escape, visible

# Neighbours differ; the number on each chip says the same to who can't tell the colours apart.
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
FILL = "33"  # opacity of a chip's fill, as two hex digits behind its colour
MOST_CHIPS = 200  # more would take long to draw and nobody would read them
QUIET = 'style="font-size:11px;opacity:.8"'


class Chip(NamedTuple):
    """One token."""

    token_id: int
    raw: bytes
    special: bool = False  # a control token of the chat template
    fresh: bool = False  # made by the last merge
    starts_piece: bool = False  # no merge joins it to the chip before


def chips(tokens: Sequence[Chip], label: str) -> str:
    """Chips in the order of the text, each with number, text, id and bytes; HTML. At most 200 are drawn."""
    drawn = [_chip(number, chip) for number, chip in enumerate(tokens[:MOST_CHIPS])]
    more = ""
    if len(tokens) > MOST_CHIPS:
        more = f"<p>… and {len(tokens) - MOST_CHIPS:,} more tokens, which are counted but not drawn.</p>"
    if not tokens:
        more = "<p>No tokens: the text is empty.</p>"
    style = "display:flex;flex-wrap:wrap;gap:4px 3px;max-height:340px;overflow:auto;padding:4px"
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div role="list" aria-label="{escape(label)}" tabindex="0" style="{style}">{"".join(drawn)}</div>{more}'
        + _table(tokens[:MOST_CHIPS])
    )


def counts(columns: Mapping[str, tuple[str, int]]) -> str:
    """Characters, bytes and tokens of some texts, side by side; HTML.

    columns: by name, a text and its number of tokens.
    """
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    rows: dict[str, list[str]] = {"characters": [], "bytes (UTF-8)": [], "tokens": [], "bytes a token": []}
    for text, tokens in columns.values():
        size = len(text.encode("utf-8", "surrogatepass"))
        numbers = [f"{len(text):,}", f"{size:,}", f"{tokens:,}", f"{size / tokens:.2f}" if tokens else "–"]
        for row, number in zip(rows.values(), numbers, strict=True):
            row.append(f"<td>{number}</td>")
    body = "".join(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>' for name, cells in rows.items())
    return f"<table><tr><td></td>{heads}</tr>{body}</table>"


def shown(raw: bytes) -> str:
    """The bytes of a token as text, blanks as signs; bytes that are no whole character as hexadecimal. Not escaped."""
    try:
        return visible(raw.decode())
    except UnicodeDecodeError:
        return "⟨" + visible(raw.hex(" ").upper()) + "⟩"


def hexadecimal(raw: bytes, most: int = 4) -> str:
    """Bytes as pairs of digits, the first of them where there are many."""
    pairs = raw[:most].hex(" ").upper()
    return pairs if len(raw) <= most else f"{pairs} … ({len(raw)})"


def _chip(number: int, chip: Chip) -> str:
    colour = GREY if chip.special else COLOURS[number % len(COLOURS)]
    border = f"3px double {colour}" if chip.special else f"2px solid {colour}" if chip.fresh else f"1px solid {colour}"
    mark = " ◆ special" if chip.special else " ★ new" if chip.fresh else ""
    gap = "margin-left:7px;" if chip.starts_piece else ""
    style = f"{gap}border:{border};background:{colour}{FILL};border-radius:4px;padding:1px 5px;text-align:center"
    text = f"<bdi><code style='background:none;color:inherit;font-size:15px'>{escape(shown(chip.raw))}</code></bdi>"
    return (
        f'<div role="listitem" style="{style}"><div {QUIET}>{number}{mark}</div>{text}'
        f"<div {QUIET}>id {chip.token_id}<br>{hexadecimal(chip.raw)}</div></div>"
    )


def _table(tokens: Sequence[Chip]) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("number", "token", "id", "bytes"))
    rows = "".join(
        f"<tr><td>{number}{' ◆' if chip.special else ''}</td><td><bdi><code>{escape(shown(chip.raw))}</code></bdi></td>"
        f"<td>{chip.token_id}</td><td>{hexadecimal(chip.raw, 32)}</td></tr>"
        for number, chip in enumerate(tokens)
    )
    return f"<details><summary>The same as a table</summary><table><tr>{heads}</tr>{rows}</table></details>"
