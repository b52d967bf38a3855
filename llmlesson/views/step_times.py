"""How long a decode step takes, over the tokens that it looks back at."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import NamedTuple

from llmlesson.views.markup import label, note, svg
from llmlesson.views.plot import COMPUTED_DASH, Pictured, colour, new_figure
from llmlesson.views.style import paint

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 340, 60, 190, 14, 46
ACROSS, UP = "tokens in the cache", "ms for a step"
FILLED, DASHED = "Filled: measured on this machine.", "Dashed: computed, bytes divided by bandwidth."


class StepTimes(NamedTuple):
    """Steps of one kind, in the order of their caches."""

    name: str
    cached: Sequence[int]  # tokens in the cache before the step
    seconds: Sequence[float]
    measured: bool
    texts: Sequence[str] = ()  # what each step gave, for pointing at it


def step_times(title: str, series: Sequence[StepTimes]) -> Pictured:
    """Measured steps as filled points, computed ones as dashed lines, with a still of the same. Not without series."""
    figure = new_figure(title, ACROSS, UP, _how(series))
    for one in series:
        how = "measured" if one.measured else "computed"
        figure.add_scatter(
            x=list(one.cached),
            y=[1000 * seconds for seconds in one.seconds],
            mode="markers" if one.measured else "lines",
            marker=dict(color=colour("answer"), size=6),
            line=dict(color=colour("answer"), width=2, dash=COMPUTED_DASH),
            name=one.name,
            text=[f"{text!r}<br>" for text in one.texts] or [""] * len(one.cached),
            hovertemplate=f"%{{text}}{how}: %{{y:.3g}} ms, looking back at %{{x:,}} tokens<extra>{one.name}</extra>",
        )
        figure.add_annotation(x=one.cached[-1], y=1000 * one.seconds[-1], text=one.name)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(margin_r=RIGHT)
    return Pictured(figure, step_times_picture(series), _spoken(series))


def step_times_picture(series: Sequence[StepTimes]) -> str:
    """The still. HTML."""
    across = ticks(max(max(one.cached) for one in series))
    up = ticks(max(1000 * max(one.seconds) for one in series))

    def x(cached: float) -> float:
        return LEFT + cached / across[-1] * (WIDTH - LEFT - RIGHT)

    def y(ms: float) -> float:
        return HEIGHT - BOTTOM - ms / up[-1] * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in up:
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" {paint(stroke="line")}/>')
        parts.append(label(LEFT - 8, y(tick) + 4, f"{tick:,g}", anchor="end"))
    parts += [label(x(tick), HEIGHT - BOTTOM + 16, f"{tick:,g}", anchor="middle") for tick in across]
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, ACROSS, anchor="middle"))
    parts.append(label(14, (HEIGHT - BOTTOM) / 2, UP, anchor="middle", turn=-90))
    for one in series:
        points = [(x(cached), y(1000 * seconds)) for cached, seconds in zip(one.cached, one.seconds, strict=True)]
        if one.measured:
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" {paint("answer")}/>' for a, b in points]
        else:
            path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            parts.append(f'<path d="M{path}" {paint(stroke="answer", width=2, dash="4 3")}/>')
        parts.append(label(points[-1][0] + 10, points[-1][1] + 4, one.name, bold=True))
    return svg(WIDTH, HEIGHT, _spoken(series), parts) + note(_how(series))


def ticks(most: float) -> list[float]:
    """From 0 in even steps of 1, 2 or 5 to `most` or just above it. most > 0."""
    power = 10.0 ** floor(log10(most / 4))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice * 5 >= most)
    return [step * index for index in range(int(-(-most // step)) + 1)]


def _how(series: Sequence[StepTimes]) -> str:
    """What filled and dashed mean, where there is some of it."""
    kinds = {one.measured for one in series}
    return " ".join(text for measured, text in ((True, FILLED), (False, DASHED)) if measured in kinds)


def _spoken(series: Sequence[StepTimes]) -> str:
    lines = [
        f"{one.name}, {'measured' if one.measured else 'computed'}: {1000 * one.seconds[0]:,.3g} with "
        f"{one.cached[0]:,} tokens in the cache, {1000 * one.seconds[-1]:,.3g} with {one.cached[-1]:,}"
        for one in series
    ]
    return f"Milliseconds of a decode step. {'; '.join(lines)}."
