from __future__ import annotations

import time

import pytest
import torch

from llmlesson.measure.timing import Sample, Stopwatch, speedup


def test_median_and_interquartile_range():
    sample = Sample.of([5, 1, 2, 4, 3])
    assert sample.median == 3
    assert sample.spread == 2  # from 2 to 4
    assert Sample.of([7]).spread == 0


def test_one_outlier_moves_neither():
    assert Sample.of([1, 1, 1, 1, 100]).median == 1
    assert Sample.of([1, 1, 1, 1, 100]).spread == 0


def test_a_ratio_needs_a_difference_larger_than_the_spread():
    fast, slow = Sample.of([1.0, 1.1, 1.2]), Sample.of([2.0, 2.2, 2.4])
    assert speedup(fast, slow) == pytest.approx(2.0)
    assert speedup(slow, fast) == pytest.approx(0.5)
    noisy = Sample.of([0.1, 2.2, 9.0])
    assert speedup(fast, noisy) is None
    assert speedup(noisy, fast) is None
    assert speedup(fast, fast) is None


def test_a_difference_as_large_as_the_spread_is_not_enough():
    assert speedup(Sample.of([1, 2, 3]), Sample.of([2, 3, 4])) is None


def test_a_single_measurement_gives_no_ratio():
    assert speedup(Sample.of([1.0]), Sample.of([2.0, 2.0, 2.0])) is None
    assert speedup(Sample.of([1.0, 1.0]), Sample.of([2.0])) is None


def test_laps_add_up(monkeypatch):
    ticks = iter([10.0, 10.5, 12.5, 100.0, 103.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    stopwatch = Stopwatch(torch.device("cpu"))
    stopwatch.start()
    stopwatch.lap()
    stopwatch.lap()
    assert stopwatch.laps() == [0.5, 2.0]
    stopwatch.start()  # begins anew
    stopwatch.lap()
    assert stopwatch.laps() == [3.0]


@pytest.mark.gpu
def test_laps_on_cuda_are_the_devices_time():
    device = torch.device("cuda")
    x = torch.randn(4096, 4096, device=device)
    stopwatch = Stopwatch(device)
    stopwatch.start()
    x @ x  # a first product loads the library
    stopwatch.lap()
    for _ in range(20):
        x @ x
    stopwatch.lap()
    first, twenty = stopwatch.laps()
    assert first > 0
    assert twenty > 0
