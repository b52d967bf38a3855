"""Measured time: laps, median and spread, and whether a ratio of two times means anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

import torch

from llmlesson.engine.mark import Mark


class Stopwatch:
    """Laps of work on one device: `start()`, `lap()` after each piece of work, then `laps()` in seconds.

    On CUDA the laps are the device's time, and `lap` doesn't wait.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[Mark] = []

    def start(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()  # so that earlier work doesn't count
        self._marks = [Mark(self._device)]

    def lap(self) -> None:
        self._marks.append(Mark(self._device))

    def laps(self) -> list[float]:
        """Seconds between consecutive marks."""
        self._marks[-1].wait()
        return [after.seconds_since(before) for before, after in pairwise(self._marks)]


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of the same work, in seconds."""

    seconds: tuple[float, ...]

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Sample:
        return cls(tuple(seconds))

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """The interquartile range: the middle half of the measurements lies within it. 0 for a single one."""
        if len(self.seconds) < 2:
            return 0.0
        first, _, third = quantiles(self.seconds, n=4, method="inclusive")
        return third - first


def speedup(fast: Sample, slow: Sample) -> float | None:
    """How many times as fast: the ratio of the medians, slow / fast.

    None if that would be noise: if the medians differ by no more than the larger of the two spreads, or if one of the
    two was measured only once and so has no spread.
    """
    if min(len(fast.seconds), len(slow.seconds)) < 2:
        return None
    if abs(slow.median - fast.median) <= max(fast.spread, slow.spread):
        return None
    return slow.median / fast.median
