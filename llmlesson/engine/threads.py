"""How many CPU threads to use: we ask how many CPUs we really have, then try which count is really fastest."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import torch

from llmlesson.limits import usable_cpus


def choose_threads(trial: Callable[[], object], repeats: int = 3) -> int:
    """Set torch's thread count to the fastest of all usable CPUs, half of them, a quarter … one. Returns it.

    trial: a decode step. Each count is tried `repeats` times after a warm-up, and its best time counts, because other
    programs can only make a run slower. Decode waits for memory, which a few threads can saturate. If the user has set
    OMP_NUM_THREADS, nothing changes.
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
