"""Measured time: laps, median and spread, and when a ratio of two times means anything."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles

import torch


class Stopwatch:
    """Laps of work on one device: `start()`, `lap()` after each piece of work, then `laps()` in seconds.

    On CUDA the marks are events in the stream, so that the laps are the device's time and marking waits for nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def start(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize()  # nothing from before counts
        self._marks.clear()
        self._events.clear()
        self.lap()

    def lap(self) -> None:
        if self._on_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._marks.append(time.perf_counter())

    def laps(self) -> list[float]:
        """Seconds between each two marks."""
        if self._on_cuda:
            torch.cuda.synchronize()
            pairs = zip(self._events, self._events[1:], strict=False)
            return [before.elapsed_time(after) / 1000 for before, after in pairs]
        return [after - before for before, after in zip(self._marks, self._marks[1:], strict=False)]


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

    None where that would be noise: where the medians differ by no more than the larger of the two spreads, or where
    one of the two was measured only once and has no spread to compare with.
    """
    if min(len(fast.seconds), len(slow.seconds)) < 2:
        return None
    if abs(slow.median - fast.median) <= max(fast.spread, slow.spread):
        return None
    return slow.median / fast.median
