"""How many CPU threads to use: what the machine really lends us, then what is really faster."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """CPUs that this process may use: those present, less by its affinity, less by its container's quota.

    torch by itself starts a thread for every core of the host. In a container limited to one or two of them (Binder,
    JupyterHub) these threads fight, and decode becomes several times slower.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(cpus, math.ceil(quota))) if quota else cpus


def _cgroup_quota() -> float | None:
    """CPUs by the container's quota: `quota period` in cgroup v2's cpu.max, two files in v1."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (CGROUP / "cpu/cpu.cfs_quota_us").read_text()
            period = (CGROUP / "cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        return float(quota) / float(period) if float(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max": no quota
        return None


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
