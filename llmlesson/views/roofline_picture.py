"""Rooflines as a still picture, for pages without a kernel or scripts."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from llmlesson.views.markup import label, note, svg
from llmlesson.views.style import paint

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 412, 70, 190, 26, 46

MEASURED = "Solid and filled: measured on this machine."
COMPUTED = "Dashed and hollow: computed from data sheets, at the limit."


class Roof(NamedTuple):
    """The two limits of a machine."""

    name: str
    bytes_per_second: float
    flops_per_second: float
    measured: bool

    @property
    def ridge(self) -> float:
        return self.flops_per_second / self.bytes_per_second

    def at(self, intensity: float) -> float:
        """FLOPs per second that the limits allow."""
        return min(intensity * self.bytes_per_second, self.flops_per_second)


class Mark(NamedTuple):
    """A pass under a roof."""

    name: str
    intensity: float  # FLOPs per byte
    flops_per_second: float
    measured: bool
    work: str = "prompt"  # "prompt" | "answer", the hue


def roofline_picture(roofs: Sequence[Roof], marks: Sequence[Mark]) -> str:
    """All roofs and marks in one picture, both axes logarithmic: measured solid, computed dashed and hollow. HTML."""
    across = [roof.ridge for roof in roofs] + [mark.intensity for mark in marks]
    left, right = floor(log10(min(across))), ceil(log10(max(across) * 2))
    speeds = [roof.flops_per_second for roof in roofs] + [mark.flops_per_second for mark in marks]
    speeds += [roof.at(10.0**left) for roof in roofs]
    low, high = floor(log10(min(speeds))), ceil(log10(max(speeds)))

    def x(intensity: float) -> float:
        return LEFT + (log10(intensity) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(speed: float) -> float:
        return TOP + (high - log10(speed)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for power in range(left, right + 1):
        parts.append(f'<path d="M{x(10**power):.1f} {TOP}V{HEIGHT - BOTTOM}" {paint(stroke="line")}/>')
        parts.append(label(x(10**power), HEIGHT - BOTTOM + 16, f"{10**power:,g}", anchor="middle"))
    for power in range(low, high + 1):
        parts.append(f'<path d="M{LEFT} {y(10**power):.1f}H{WIDTH - RIGHT}" {paint(stroke="line")}/>')
        parts.append(label(LEFT - 8, y(10**power) + 4, _gflops(10.0**power), anchor="end"))
    parts.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "FLOPs per byte moved", anchor="middle"))
    parts.append(label(14, HEIGHT / 2 - 16, "GFLOP/s", anchor="middle", turn=-90))
    for roof in roofs:
        path = "".join(
            f"{'L' if index else 'M'}{x(value):.1f} {y(roof.at(value)):.1f}"
            for index, value in enumerate((10.0**left, roof.ridge, 10.0**right))
        )
        parts.append(f'<path d="{path}" {paint(stroke="wait", width=2, dash="" if roof.measured else "4 3")}/>')
        how = "measured" if roof.measured else "computed"
        parts.append(label(WIDTH - RIGHT + 8, y(roof.flops_per_second) - 2, roof.name, bold=True))
        parts.append(label(WIDTH - RIGHT + 8, y(roof.flops_per_second) + 13, f"{how}, ridge at {roof.ridge:,.0f}"))
    for index, mark in enumerate(marks):
        fill = paint(mark.work if mark.measured else None, mark.work, 2)
        parts.append(f'<circle cx="{x(mark.intensity):.1f}" cy="{y(mark.flops_per_second):.1f}" r="5" {fill}/>')
        # Neighbours on alternate sides, and no name over the edge on the left.
        above = index % 2 == 0 and x(mark.intensity) - 7 * len(mark.name) > LEFT
        at = (x(mark.intensity) + (-8 if above else 8), y(mark.flops_per_second) + (-7 if above else 16))
        parts.append(label(*at, mark.name, anchor="end" if above else "start"))
    kinds = {roof.measured for roof in roofs} | {mark.measured for mark in marks}
    how = " ".join(text for measured, text in ((True, MEASURED), (False, COMPUTED)) if measured in kinds)
    return svg(WIDTH, HEIGHT, _spoken(roofs, marks), parts) + note(how)


def _gflops(speed: float) -> str:
    return f"{speed / 1e9:,.10g}"


def _spoken(roofs: Sequence[Roof], marks: Sequence[Mark]) -> str:
    limits = "; ".join(
        f"{roof.name}, {'measured' if roof.measured else 'computed'}: {roof.bytes_per_second / 1e9:,.0f} GB/s, "
        f"{roof.flops_per_second / 1e9:,.0f} GFLOP/s, ridge at {roof.ridge:,.0f} FLOPs per byte"
        for roof in roofs
    )
    passes = "; ".join(
        f"{mark.name}: {mark.intensity:,.1f} FLOPs per byte, {mark.flops_per_second / 1e9:,.0f} GFLOP/s"
        for mark in marks
    )
    return f"Rooflines. {limits}. {passes}."
