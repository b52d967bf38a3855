"""How an exercise went, hints and solutions: HTML for a notebook, plain text for a terminal."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from llmlesson.views.markup import table, title
from llmlesson.views.style import css, styled
from llmlesson.views.text import escape

EDGES = {"passed": ("ink", "solid"), "failed": ("broken", "dashed"), "not done": ("wait", "dotted")}
LONGEST = 400  # characters of a value that are shown
FEW_ELEMENTS = 24  # a tensor with at most this many is shown in full


def report_html(
    status: str, headline: str, rows: Sequence[tuple[str, str]], details: Sequence[tuple[str, str]] = ()
) -> str:
    """A headline, (label, text) rows below it, then the details, which are folded if they are long.

    Raises KeyError for an unknown status.
    """
    if sum(len(text) for _, text in details) <= LONGEST:
        table = _rows([*rows, *details])
    else:
        table = f"{_rows(rows)}<details><summary>The case, with what was expected</summary>{_rows(details)}</details>"
    colour, line = EDGES[status]
    style = f"{css('border-left', colour, f'4px {line}')}padding:.3em .9em;margin:.4em 0;{css('background', 'panel')}"
    head = f'<p style="margin:.3em 0"><strong>{escape(headline)}</strong></p>'
    return styled(f'<div role="status" style="{style}">{head}{table}</div>')


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr><th scope="row" style="text-align:left;vertical-align:top;white-space:nowrap">{escape(label)}</th>'
        f'<td style="text-align:left;white-space:pre-wrap;overflow-wrap:anywhere">{_cell(label, text)}</td></tr>'
        for label, text in rows
    )
    return f'<table style="margin:.3em 0">{lines}</table>' if rows else ""


def report_text(headline: str, rows: Sequence[tuple[str, str]]) -> str:
    """The same for a terminal."""
    width = max((len(label) for label, _ in rows), default=0)
    lines = [f"  {label:{width}}  " + text.replace("\n", "\n" + " " * (width + 4)) for label, text in rows]
    return "\n".join([headline, *lines])


def scoreboard(headline: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Who wrote which parts of an engine; HTML."""
    return styled(title(headline) + table(head, rows, left=True))


def folded(parts: Mapping[str, str], code: bool = False) -> str:
    """Texts by title, each of which unfolds; with `code`, as preformatted code."""
    return "".join(
        f'<details style="margin:.3em 0"><summary>{escape(title)}</summary>'
        + (f"<pre><code>{escape(text)}</code></pre>" if code else f'<p style="margin:.3em 1.2em">{escape(text)}</p>')
        + "</details>"
        for title, text in parts.items()
    )


def shown(value: Any) -> str:
    """An input or a result in a few lines: long ones are cut in the middle, large tensors show shape and dtype."""
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 60]} … {text[-50:]}"


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 40
        self.maxstring = self.maxother = LONGEST
        self.maxlong = 60

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value) if len(value) <= 100 else f"{value[:90]!r}… ({len(value)} bytes)"

    def repr_Tensor(self, value: Any, level: int) -> str:
        about = f"tensor of shape {list(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
        if value.numel() > FEW_ELEMENTS:
            return f"{about}, beginning with {_numbers(value.flatten()[:4].tolist())}"
        return f"{about}: {_numbers(value.tolist())}"


_SHORT = _Short()


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_numbers(item) for item in value)}]"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _cell(label: str, text: str) -> str:
    # Words as words, values and code as code; either may run from right to left.
    words = label in ("usually means", "why", "problem", "kept in", "not kept")
    return f"<bdi>{escape(text)}</bdi>" if words else f"<bdi><code>{escape(text)}</code></bdi>"
