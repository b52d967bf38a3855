"""Tokens as numbered, coloured chips, and their counts."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from llmlesson.views.markup import folded, note, table
from llmlesson.views.style import css, styled
from llmlesson.views.text import VISIBLE, escape, visible

MOST_LOST = 8  # characters without a token that are listed
MOST_CHIPS = 200  # more would take long to draw and nobody would read them
QUIET = "font-size:11px;opacity:.8"


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
    style = "display:flex;flex-wrap:wrap;gap:4px 3px;max-height:340px;overflow:auto;padding:4px;line-height:1.3"
    # A region that scrolls must be reachable by keyboard.
    return styled(
        f'<div role="list" aria-label="{escape(label)}" tabindex="0" style="{style}">{"".join(drawn)}</div>{more}'
    ) + _table(tokens[:MOST_CHIPS])


def counts(columns: Mapping[str, tuple[str, int]]) -> str:
    """Characters, bytes and tokens of some texts, side by side; HTML.

    columns: by name, a text and its number of tokens.
    """
    rows = [["characters"], ["bytes (UTF-8)"], ["tokens"], ["bytes a token"]]
    for text, tokens in columns.values():
        size = len(text.encode("utf-8", "surrogatepass"))
        numbers = [f"{len(text):,}", f"{size:,}", f"{tokens:,}", f"{size / tokens:.2f}" if tokens else "–"]
        for row, number in zip(rows, numbers, strict=True):
            row.append(number)
    return table(["", *columns], rows)


def shown(raw: bytes) -> str:
    """The bytes of a token as text, blanks as signs; as hexadecimal where they are no whole character, or one that
    can't be seen. Not escaped.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if raw and (not text or any(_is_control(char) for char in text)):
        return "⟨" + visible(raw.hex(" ").upper()) + "⟩"
    return visible(text)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) == "Cc" and char not in VISIBLE


def lost(parts: Sequence[bytes]) -> str:
    """What happened to characters that the vocabulary has no token for; HTML. Empty if there are none."""
    if not parts:
        return ""
    names = [f"U+{raw[0]:04X}" if len(raw) == 1 and raw[0] < 0x80 else shown(raw) for raw in parts[:MOST_LOST]]
    more = f" and {len(parts) - MOST_LOST:,} more" if len(parts) > MOST_LOST else ""
    which = "a character" if len(parts) == 1 else f"{len(parts):,} characters or bytes"
    return note(
        f"✗ The vocabulary has no token for {which} of this text ({', '.join(names)}{more}): the tokenizer leaves out "
        "what it can’t spell, and the model never sees it."
    )


def hexadecimal(raw: bytes, most: int = 4) -> str:
    """Bytes as pairs of digits; only the first ones if there are many."""
    pairs = raw[:most].hex(" ").upper()
    return pairs if len(raw) <= most else f"{pairs} … ({len(raw)})"


def _chip(number: int, chip: Chip) -> str:
    # Written by the template: no ground. Made by the last merge: framed. The others: the text somebody typed.
    ground = "" if chip.special else css("background", "prompt-tint")
    border = css("border", "prompt" if chip.fresh else "wait" if chip.special else "prompt-tint", "2px solid")
    mark = " ◆ special" if chip.special else " ★ new" if chip.fresh else ""
    gap = "margin-left:7px;" if chip.starts_piece else ""
    style = f"{gap}{border}{ground}border-radius:5px;padding:1px 4px;text-align:center"
    text = f'<code style="background:none;color:inherit;font-size:15px">{escape(shown(chip.raw))}</code>'
    return (
        f'<div role="listitem" style="{style}"><div style="{QUIET}">{number}{mark}</div><bdi>{text}</bdi>'
        f'<div style="{QUIET}">id {chip.token_id}<br>{hexadecimal(chip.raw)}</div></div>'
    )


def _table(tokens: Sequence[Chip]) -> str:
    rows = [
        (f"{number}{' ◆' if chip.special else ''}", shown(chip.raw), chip.token_id, hexadecimal(chip.raw, 32))
        for number, chip in enumerate(tokens)
    ]
    return folded("The same as a table", table(["number", "token", "id", "bytes"], rows))
