"""The CPUs and memory that this process may really use, given the limits of its container.

A container (Docker, Kubernetes) or a service of systemd (The Littlest JupyterHub) is limited by control groups, which
the usual ways to count cores and free memory don't see.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Memory:
    """In bytes. `free` is what a new process can take without swapping, `limited` whether a container is the bound."""

    total: int
    free: int
    limited: bool


def usable_cpus() -> int:
    """CPUs that this process may use: those present, as far as its affinity and its container's quota allow.

    On its own, torch starts a thread for every core of the host. In a container limited to one or two of them (Binder,
    JupyterHub) these threads compete, and decode becomes several times slower.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for group in _groups("cpu") if (quota := _cpu_quota(group))]
    return max(1, min(cpus, math.ceil(min(quotas)))) if quotas else cpus


def usable_memory() -> Memory:
    """Memory that this process may use: the machine's, or that of the tightest control group."""
    import psutil

    host = psutil.virtual_memory()
    total, free, limited = host.total, host.available, False
    for group in _groups("memory"):
        limit, used = _memory_limit(group)
        if limit and limit < total:
            total, limited = limit, True
        if limit and limit - used < free:
            free, limited = max(0, limit - used), True
    return Memory(total, free, limited)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the control groups of this process, from its own up to the root: a limit on any of them applies.

    In version 2 all controllers share one tree; in version 1 each has its own, and both kinds may be there. Inside of
    a container the root often is the container's own group, so that the path named in /proc does not exist.
    """
    try:
        lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # macOS, Windows
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = CGROUP
        elif controller in controllers.split(","):
            root = CGROUP / controller
        else:
            continue
        folder = root / path.strip("/")
        yield from (group for group in (folder, *folder.parents) if group.is_relative_to(root) and group.is_dir())


def _cpu_quota(group: Path) -> float | None:
    """In CPUs; None if there is no quota. `quota period` in version 2, two files in version 1."""
    try:
        quota, period = _read(group / "cpu.max").split() or (
            _read(group / "cpu.cfs_quota_us"),
            _read(group / "cpu.cfs_period_us"),
        )
        return float(quota) / float(period) if float(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max", or neither file
        return None


def _memory_limit(group: Path) -> tuple[int, int]:
    """(limit, used) in bytes; without a limit (0, 0), or in version 1 a limit that no machine reaches.

    Cached files don't count as used: the kernel drops them first.
    """
    for limit, usage, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        try:
            nbytes = int(_read(group / limit))
            used = int(_read(group / usage))
        except ValueError:  # "max", or no such file
            continue
        lines = (line.split() for line in _read(group / "memory.stat").splitlines())
        counts = {parts[0]: int(parts[1]) for parts in lines if len(parts) == 2}
        cached = sum(counts.get(f"{prefix}{name}_file", 0) for name in ("active", "inactive"))
        return nbytes, max(0, used - cached)
    return 0, 0


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
