"""The frame of a still with two logarithmic axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10

from llmlesson.views.markup import label
from llmlesson.views.style import paint

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 420, 70, 40, 46


@dataclass(frozen=True)
class LogLog:
    """Places in the picture, in pixels, for values between the ends of each axis (all above 0)."""

    left: float
    right: float
    low: float
    high: float
    margin: float = 40  # at the right, for names

    def x(self, value: float) -> float:
        share = (log10(value) - log10(self.left)) / (log10(self.right) - log10(self.left))
        return LEFT + share * (WIDTH - LEFT - self.margin)

    def y(self, value: float) -> float:
        share = (log10(self.high) - log10(value)) / (log10(self.high) - log10(self.low))
        return TOP + share * (HEIGHT - TOP - BOTTOM)

    def axes(
        self,
        across: Sequence[float],
        up: Sequence[float],
        names: tuple[str, str],
        says: tuple[Callable[[float], str], Callable[[float], str]],
    ) -> list[str]:
        """SVG: lines with their numbers. across, up: values that have one; names, says: of the two axes."""
        end = WIDTH - self.margin
        parts = []
        for value in up:
            parts.append(f'<path d="M{LEFT} {self.y(value):.1f}H{end}" {paint(stroke="line")}/>')
            parts.append(label(LEFT - 8, self.y(value) + 4, says[1](value), anchor="end"))
        for value in across:
            parts.append(f'<path d="M{self.x(value):.1f} {TOP}V{HEIGHT - BOTTOM}" {paint(stroke="line")}/>')
            parts.append(label(self.x(value), HEIGHT - BOTTOM + 16, says[0](value), anchor="middle"))
        parts.append(label((LEFT + end) / 2, HEIGHT - 8, names[0], anchor="middle"))
        parts.append(label(14, HEIGHT / 2 - 10, names[1], anchor="middle", turn=-90))
        return parts

    def line(self, points: Sequence[tuple[float, float]]) -> str:
        """The `d` of an SVG path through points of values."""
        return "".join(f"{'L' if i else 'M'}{self.x(x):.1f} {self.y(y):.1f}" for i, (x, y) in enumerate(points))
