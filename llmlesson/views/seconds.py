"""Seconds as text, and as the marks of an axis."""

from __future__ import annotations

from itertools import pairwise


def duration(seconds: float) -> str:
    """A duration to about three digits."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 or ms == 0 else f"{ms:.1f} ms"


def ticks(total: float) -> list[float]:
    """Three to six round times from 0 to `total` seconds."""
    if total <= 0:
        return [0.0]
    steps = [m * 10.0**e for e in range(-7, 5) for m in (1, 2, 5)]
    step = next((later for earlier, later in pairwise(steps) if total / later < 6), steps[-1])
    return [i * step for i in range(int(total / step) + 1)]
