"""One text at several levels (characters, bytes, tokens, …), laid out over the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmlesson.views.style import css, styled
from llmlesson.views.text import escape


def alignment(rows: Mapping[str, Sequence[tuple[str, int]]]) -> str:
    """A table with a row for each level; HTML. Parts with more bytes are wider, so you see what each is made of.

    rows: by name of the level, its parts from left to right: what to write, and how many bytes it covers. A level whose
    name begins with "token" has chips.
    Raises ValueError unless all rows cover the same number of bytes.
    """
    widths = {name: sum(size for _, size in parts) for name, parts in rows.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"the rows cover different numbers of bytes: {widths}")
    lines = "".join(_row(name, parts) for name, parts in rows.items())
    return styled(f'<div style="overflow-x:auto"><table style="border-collapse:separate">{lines}</table></div>')


def _row(name: str, parts: Sequence[tuple[str, int]]) -> str:
    head = f'<th scope="row" style="text-align:left;padding:2px 10px 2px 0">{escape(name)}</th>'
    cells = "".join(_part(text, size, name.startswith("token")) for text, size in parts)
    return f'<tr style="background:none">{head}{cells}</tr>'


def _part(text: str, size: int, token: bool) -> str:
    form = css("background", "prompt-tint") + "border-radius:5px" if token else css("border", "wait", "1px solid")
    code = f'<code style="background:none;color:inherit">{escape(text)}</code>'
    style = f"text-align:center;white-space:nowrap;padding:2px 4px;{form}"
    return f'<td colspan="{size}" style="{style}"><bdi>{code}</bdi></td>'
