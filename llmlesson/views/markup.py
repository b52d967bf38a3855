"""Building blocks of pictures in HTML and SVG, readable in the light and the dark theme."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.views.style import PALETTE, SHEET, paint
from llmlesson.views.text import escape, visible

# Only the middle tone: a border in every cell of a table must be short.
CELL = f"padding:.2em .7em;border-bottom:1px solid {PALETTE['line'].both};vertical-align:top;"


class Html(str):
    """Text that is already HTML, and so is not escaped like other text."""


def svg(width: float, height: float, spoken: str, parts: Sequence[str], shrink: float = 0.75) -> str:
    """An SVG with a description for screen readers. It shrinks with the page, down to `shrink`; below that it scrolls.

    Until a notebook is trusted or run, JupyterLab strips the tags of an SVG but leaves its letters. So the letters get
    their size from their own tags, and vanish without them; the description is shown instead.
    """
    spoken = escape(spoken)
    return (
        f'<div class="ll" style="overflow-x:auto;max-width:{width:.0f}px;font-size:0" tabindex="0" role="group" '
        f'aria-label="picture">{SHEET}'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{spoken}" style="width:100%;min-width:{shrink * width:.0f}px;height:auto;display:block" '
        f'font-family="var(--jp-ui-font-family, sans-serif)">{"".join(parts)}</svg>'
        f'<p aria-hidden="true" style="font-size:14px;margin:0;overflow:hidden;max-block-size:0">{spoken}</p></div>'
    )


def label(
    x: float,
    y: float,
    text: object,
    size: int = 12,
    anchor: str = "start",
    bold: bool = False,
    mono: bool = False,
    turn: int = 0,
    colour: str = "",
) -> str:
    """A text in an SVG, turned by `turn` degrees; in the page's own colour, or in one that letters can have."""
    style = ("font-weight:600;" if bold else "") + ("font-family:monospace;" if mono else "")
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    ink = paint(colour) if colour else 'fill="currentColor"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" {ink}{turned} '
        f'style="{style}unicode-bidi:isolate">{escape(text)}</text>'
    )


def key_over_value(x: float, y: float, width: float, height: float, opacity: float = 1) -> str:
    """A piece of the KV cache in an SVG: keys above, values below."""
    half = height / 2
    return "".join(
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(width, 0):.1f}" height="{half:g}" '
        f"{paint(name, opacity=opacity)}/>"
        for top, name in ((y, "key"), (y + half, "value"))
    )


def band(x: float, y: float, width: float, height: float, name: str) -> str:
    """Work in an SVG, a solid bar with square corners, or a line: of this colour."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:g}" {paint(name)}/>'


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str = "",
    bold: int | None = None,
    left: bool = False,
) -> str:
    """A table of texts: the first cell of a row is its heading, the others are right-aligned. Row `bold` is bold.

    A cell of the class Html is used as it is. head: may be empty. left: all cells are left-aligned, and wrap.
    """
    title = f'<caption style="text-align:left;padding:.2em 0">{escape(caption)}</caption>' if caption else ""
    heads = f"<thead><tr>{_row(head, 'col', left)}</tr></thead>" if head else ""
    body = "".join(
        f'<tr style="font-weight:{600 if index == bold else 400}">{_row(row, "row", left)}</tr>'
        for index, row in enumerate(rows)
    )
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;color:inherit;background:transparent;'
        f'margin:.3em 0;line-height:1.35">{title}{heads}'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[object], scope: str, left: bool) -> str:
    """Cells of the head (scope "col"), or of a row, of which the first is a heading (scope "row")."""
    parts = []
    for index, cell in enumerate(cells):
        style = CELL + f"text-align:{'right' if index and not left else 'left'}"
        text = cell if isinstance(cell, Html) else f"<bdi>{escape(cell)}</bdi>"
        if scope == "col":
            parts.append(f'<th scope="col" style="{style};font-weight:600">{text}</th>')
        elif index == 0:
            parts.append(f'<th scope="row" style="{style};font-weight:inherit;white-space:nowrap">{text}</th>')
        else:
            parts.append(f'<td style="{style};white-space:{"normal" if left else "nowrap"}">{text}</td>')
    return "".join(parts)


def folded(summary: str, html: str) -> str:
    """`html` behind a line that unfolds it, by mouse or keyboard."""
    return f'<details style="line-height:1.4"><summary>{escape(summary)}</summary>{html}</details>'


def title(text: str) -> str:
    """A heading above a picture."""
    return f'<p style="margin:.8em 0 .2em;line-height:1.4;font-weight:600">{escape(text)}</p>'


def note(text: str) -> str:
    """A line of prose beside a picture."""
    return f'<p style="margin:.2em 0;line-height:1.4;max-width:60em"><bdi>{escape(text)}</bdi></p>'


def announced(text: str) -> str:
    """A line that says what the picture shows. Screen readers read it out when it changes."""
    style = "margin:.3em 0;line-height:1.4;font-weight:600"
    return f'<p role="status" aria-live="polite" style="{style}"><bdi>{escape(text)}</bdi></p>'


def code(text: str, limit: int = 16) -> Html:
    """A token for a cell of a table: blanks visible, cut, escaped."""
    return Html(f'<bdi><code style="color:inherit;background:none">{escape(visible(text, limit))}</code></bdi>')


def scroller(name: str, html: str, style: str = "") -> str:
    """`html` that scrolls sideways, and can be scrolled by keyboard."""
    return f'<div style="overflow-x:auto;{style}" tabindex="0" role="region" aria-label="{escape(name)}">{html}</div>'


def isolated(text: str, limit: int = 16) -> str:
    """A token within other text: blanks visible, cut, its text direction isolated. Not escaped."""
    shown = visible(text, limit)
    return shown if text.isascii() else f"\N{FIRST STRONG ISOLATE}{shown}\N{POP DIRECTIONAL ISOLATE}"


def quoted(text: str, limit: int = 16) -> str:
    """The same in quotes, for a sentence."""
    return f"“{isolated(text, limit)}”"
