"""Symptoms of a broken cache: one patient step by step, and all of them side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from llmlesson.views.markup import label, svg, table, title
from llmlesson.views.style import css, paint, styled
from llmlesson.views.text import escape, visible

LEFT, TOP, COLUMN, BAR = 118, 26, 46, 90  # of the picture: margins, width of a pass, height of the highest bar
WRONG = css("border-bottom", "broken", "2px dashed")
SMALLEST, LARGEST = 0.01, 100.0  # logit differences at which a bar begins and ends


def examination(
    name: str,
    texts: Sequence[str],
    right: Sequence[str],
    differences: Sequence[float],
    second_turn: float,
    signs: Mapping[str, str],
) -> str:
    """What a patient wrote and what is right, how far its logits are off in each pass, and its signs; HTML.

    texts, right: the token after the prompt and after each step. differences: of the same passes; second_turn: of the
    pass after them.
    """
    wrong = [a != b for a, b in zip(texts, right, strict=True)]
    return (
        title(f"{name} writes:")
        + styled(f'<p style="margin:.2em 0;line-height:1.5;max-width:60em"><bdi>{_marked(texts, wrong)}</bdi></p>')
        + bars(differences, second_turn, wrong)
        + two_columns(signs)
    )


def bars(differences: Sequence[float], second_turn: float, wrong: Sequence[bool]) -> str:
    """The logit difference of each pass as a bar, on a logarithmic scale; SVG. `wrong`: where the token differs."""
    passes = [*differences, second_turn]
    names = ["prompt", *(str(i) for i in range(1, len(differences))), "turn 2"]
    width, bottom = LEFT + COLUMN * len(passes) + 8, TOP + BAR
    parts = [label(LEFT, 13, "largest logit difference from a sound engine, by step", 12, bold=True)]
    for tick in (0.01, 0.1, 1, 10):
        y = bottom - _height(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f} H{width - 8}" stroke="currentColor" stroke-opacity=".2"/>')
        parts.append(label(LEFT - 8, y + 4, f"{tick:g}", 11, "end"))
    for i, (pass_name, difference) in enumerate(zip(names, passes, strict=True)):
        x, height = LEFT + COLUMN * i, _height(difference)
        other = i < len(wrong) and wrong[i]
        look = paint(stroke="broken", width=2, dash="4 3") if other else paint("wait")
        parts.append(
            f'<rect x="{x + 6}" y="{bottom - height:.1f}" width="{COLUMN - 12}" height="{max(height, 1):.1f}" {look}/>'
        )
        number = f"{difference:.1f}" if difference >= 0.05 else "0"
        parts.append(label(x + COLUMN / 2, bottom - height - 4, number, 11, "middle"))
        parts.append(label(x + COLUMN / 2, bottom + 15, pass_name, 11, "middle"))
        parts.append(
            label(x + COLUMN / 2, bottom + 30, "✗ other" if other else "same" if i < len(wrong) else "", 11, "middle")
        )
    parts.append(label(LEFT - 8, bottom + 15, "step", 11, "end"))
    parts.append(label(LEFT - 8, bottom + 30, "token it writes", 11, "end"))
    spoken = "Logit differences: " + ", ".join(f"{n} {d:.1f}" for n, d in zip(names, passes, strict=True))
    return svg(width, bottom + 36, spoken, parts)


def ward(patients: Mapping[str, Mapping[str, str]]) -> str:
    """A row for each patient, a column for each sign; HTML."""
    signs = list(next(iter(patients.values())))
    return table(["patient", *signs], [[name, *found.values()] for name, found in patients.items()])


def two_columns(texts: Mapping[str, str]) -> str:
    """Names and their contents, both left-aligned; HTML."""
    return table((), list(texts.items()), left=True)


def _height(difference: float) -> float:
    inside = min(max(difference, SMALLEST), LARGEST)
    return BAR * math.log(inside / SMALLEST) / math.log(LARGEST / SMALLEST)


def _marked(texts: Sequence[str], wrong: Sequence[bool]) -> str:
    return "".join(
        f'<mark style="background:none;color:inherit;{WRONG}">✗ {escape(visible(text))}</mark>'
        if other
        else escape(visible(text).replace("·", " "))
        for text, other in zip(texts, wrong, strict=True)
    )
