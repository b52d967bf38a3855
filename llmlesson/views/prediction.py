"""A question, what somebody predicted, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.views.text import escape

Answer = str | float
BOX = "border-left:4px solid {colour};padding:.2em .9em;margin:.4em 0;background:rgba(128,128,128,.1)"
ASKED, ANSWERED = "#56B4E9", "#E69F00"


def question(text: str, choices: Sequence[str] | None, unit: str = "", answer: Answer | None = None) -> str:
    """The question with its choices, or the unit of the number it asks for; HTML without any control."""
    parts = [f"<p><strong>Predict.</strong> {escape(text)}</p>"]
    if choices is None:
        parts.append(f"<p>Your answer is a number{f' ({escape(unit)})' if unit else ''}.</p>")
    else:
        parts.append("<ul>" + "".join(f"<li><bdi>{escape(choice)}</bdi></li>" for choice in choices) + "</ul>")
    if answer is not None:
        parts.append(f"<p>Your prediction: <bdi>{shown(answer, unit)}</bdi></p>")
    return f'<div style="{BOX.format(colour=ASKED)}">{"".join(parts)}</div>'


def outcome(text: str, truth: Answer, reason: str = "", unit: str = "", answer: Answer | None = None) -> str:
    """The truth beside the prediction; folded, so as to spoil nothing, where nobody has predicted yet. HTML."""
    result = f"<p><strong>Measured: <bdi>{shown(truth, unit)}</bdi>.</strong> {escape(reason)}</p>"
    if answer is None:
        body = (
            f"<p>{escape(text)}</p><p>You made no prediction, which is fine.</p>"
            f"<details><summary>Show what was measured</summary>{result}</details>"
        )
    else:
        body = (
            f"<p>{escape(text)}</p><p>You predicted: <bdi>{shown(answer, unit)}</bdi> "
            f"({verdict(truth, answer)})</p>{result}"
        )
    return f'<div style="{BOX.format(colour=ANSWERED)}">{body}</div>'


def verdict(truth: Answer, answer: Answer) -> str:
    """How the prediction compares, in a few words."""
    if truth == answer:
        return "✓ as measured"
    if isinstance(truth, str) or isinstance(answer, str):
        return "✗ not what was measured"
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
