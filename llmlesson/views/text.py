"""Makes any text (a user's prompt, a model's token) safe for HTML and SVG."""

from __future__ import annotations

import html

# Spaces and line breaks have a meaning in a token, but would be invisible.
VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍"}


def escape(text: object) -> str:
    """`str(text)` for HTML or SVG, in content or in a quoted attribute: shown as it is, never read as markup.

    Control characters, which neither format can hold, become the replacement character U+FFFD.
    """
    return html.escape("".join(_shown(char) for char in str(text)))


def visible(text: str, limit: int = 16) -> str:
    """A token as it can be shown in one line: blanks as signs, cut to `limit` characters. Not yet escaped."""
    signs = "".join(VISIBLE.get(char, char) for char in text)
    return signs if len(signs) <= limit else signs[: limit - 1] + "…"


def _shown(char: str) -> str:
    # Format characters (Cf) are kept: joiners make emoji, and marks of direction are isolated where they are shown.
    control = ord(char) < 32 or 0x7F <= ord(char) <= 0x9F or 0xD800 <= ord(char) <= 0xDFFF
    return "\N{REPLACEMENT CHARACTER}" if control and char not in "\t\n" else char
