"""How many CPU threads to use: what the machine really lends us, then what is really faster."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import torch

from llmlesson.limits import usable_cpus


def choose_threads(trial: Callable[[], object], repeats: int = 3) -> int:
    """Set torch's thread count to the fastest of all usable CPUs, half of them, a quarter … one. Returns it.

    trial: a decode step. Each count is tried `repeats` times after a warm-up, and the best time counts, since
    whatever else runs on the machine only ever adds. Decode waits for memory, which few threads can saturate.
    A user's OMP_NUM_THREADS is left alone.
    """
    if os.environ.get("OMP_NUM_THREADS"):
        return torch.get_num_threads()
    counts = [usable_cpus()]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    if len(counts) > 1:
        counts = [min(counts, key=lambda count: _best_seconds(trial, count, repeats))]
    torch.set_num_threads(counts[0])
    return counts[0]


def _best_seconds(trial: Callable[[], object], threads: int, repeats: int) -> float:
    torch.set_num_threads(threads)
    trial()
    best = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        trial()
        best = min(best, time.perf_counter() - started)
    return best
