"""The CPUs and the memory that this process may use."""

from __future__ import annotations

import os
import re

from llmlesson.doctor.commands import unset_variable
from llmlesson.doctor.finding import Finding, ok, problem, warning
from llmlesson.limits import usable_cpus, usable_memory

# Bytes. The peak of a process that runs the model; lessons that measure take more.
MODEL_PROCESS = 1_200_000_000
LESSON = 1_500_000_000


def processor() -> Finding:
    usable, present = usable_cpus(), os.cpu_count() or 1
    cpus = f"{usable} CPU{'s' * (usable > 1)}"
    if usable < present:
        cpus = f"{usable} of {present} CPUs (a container's quota, or the process's affinity)"
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = re.match(r"\s*(\d+)", asked)
    if not threads:
        return ok("processor", f"{cpus}; the best number of threads is measured when the model loads")
    if int(threads[1]) > usable:
        what = f"OMP_NUM_THREADS={asked} is too many for {cpus}, which slows everything down"
        return warning("processor", what, unset_variable("OMP_NUM_THREADS"))
    return ok("processor", f"{cpus}; OMP_NUM_THREADS sets {asked} threads")


def memory() -> Finding:
    """Free memory, compared with what a lesson needs. This process's own counts as free: it may hold the model."""
    import psutil

    memory = usable_memory()
    free = memory.free + psutil.Process().memory_info().rss
    what = f"{free / 1e9:.1f} of {memory.total / 1e9:.1f} GB free; a lesson takes up to {LESSON / 1e9} GB"
    if memory.limited:
        what += ". A container's limit applies"
    if free >= LESSON:
        return ok("memory", what)
    if memory.total < LESSON:
        mend = "use a container or a machine with 2 GB or more"
    else:
        mend = "shut down other kernels (JupyterLab: Kernel, Shut Down All Kernels...) and close other programs"
    return (problem if free < MODEL_PROCESS else warning)("memory", what, mend)
