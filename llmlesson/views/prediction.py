"""A question, what somebody predicted, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.views.style import css, styled
from llmlesson.views.text import escape

Answer = str | float
Edge = tuple[str, str]  # colour and line
ASKED: Edge = ("wait", "4px dotted")  # waits for an answer
MEASURED: Edge = ("ink", "4px solid")


def question(text: str, choices: Sequence[str] | None, unit: str = "", answer: Answer | None = None) -> str:
    """The question with its choices, or with the unit of the number it asks for; HTML without controls."""
    parts = [_line(f"<strong>Predict.</strong> {escape(text)}")]
    if choices is None:
        parts.append(_line(f"Your answer is a number{f' ({escape(unit)})' if unit else ''}."))
    else:
        parts.append("<ul>" + "".join(f"<li><bdi>{escape(choice)}</bdi></li>" for choice in choices) + "</ul>")
    if answer is not None:
        parts.append(_line(f"Your prediction: <bdi>{shown(answer, unit)}</bdi>"))
    return _box(ASKED, parts)


def outcome(
    text: str,
    truth: Answer,
    reason: str = "",
    unit: str = "",
    answer: Answer | None = None,
    how: str = "measured",
) -> str:
    """The truth beside the prediction; folded, so as to spoil nothing, where nobody has predicted yet. HTML.

    how: "measured", or "computed" for what no machine in the room has done.
    """
    result = _line(f"<strong>{how.capitalize()}: <bdi>{shown(truth, unit)}</bdi>.</strong> {escape(reason)}")
    parts = [_line(escape(text))]
    if answer is None:
        parts.append(_line("You made no prediction, which is fine."))
        parts.append(f"<details><summary>Show what was {how}</summary>{result}</details>")
    else:
        parts.append(_line(f"You predicted: <bdi>{shown(answer, unit)}</bdi> ({verdict(truth, answer, how)})"))
        parts.append(result)
    return _box(MEASURED, parts)


def verdict(truth: Answer, answer: Answer, how: str = "measured") -> str:
    """How the prediction compares, in a few words."""
    if truth == answer:
        return f"✓ as {how}"
    if isinstance(truth, str) or isinstance(answer, str):
        return f"✗ not what was {how}"
    if truth > 0 and answer > 0:
        factor = max(truth / answer, answer / truth)
        size = f"{factor:,.0f} times" if factor >= 10 else f"{factor:.1f} times" if factor >= 1.1 else "a little"
        return f"{size} too {'large' if answer > truth else 'small'}"
    return f"too {'large' if answer > truth else 'small'}"


def shown(answer: Answer, unit: str = "") -> str:
    """An answer as HTML."""
    return escape(plain(answer, unit))


def plain(answer: Answer, unit: str = "") -> str:
    """An answer as text: a choice as it stands, a number with its unit."""
    if isinstance(answer, str):
        return answer
    number = f"{answer:,.0f}" if float(answer).is_integer() else f"{answer:,}"
    return f"{number} {unit}".rstrip()


def _line(html: str) -> str:
    return f'<p style="margin:.3em 0">{html}</p>'


def _box(edge: Edge, parts: Sequence[str]) -> str:
    style = f"{css('border-left', *edge)}padding:.3em .9em;margin:.4em 0;{css('background', 'panel')}"
    return styled(f'<div style="{style}">{"".join(parts)}</div>')
