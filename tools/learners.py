"""How much memory and time a lesson takes, with several learners at once, each in a process of their own:

    python tools/learners.py notebooks/00_start_here.ipynb --learners 1 2 4

For each number of learners, all start together, one kernel each, and run every cell. The table says how long the last
one took, and what the kernels held. (Linux only, for the proportional share.)

Memory of a process is counted in three ways. RSS: all its pages in memory. USS: those that no other process uses. PSS:
its own pages, and of those it shares its part; the PSS of all processes is what the machine needs. In MB of 10^6 bytes.
Without anyone sampling, a kernel is a little faster: every look at its pages stops it for a moment.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

MB = 1e6
INTERVAL = 0.5  # seconds between two looks


@dataclass
class Memory:
    """Peaks of one kernel, and of all together, in bytes; `last` is the sum of PSS before the kernels ended."""

    rss: int = 0
    uss: int = 0
    pss: int = 0
    all_pss: int = 0
    last: list[int] = field(default_factory=list)


class Learner(NotebookClient):
    """Runs a notebook, and leaves its kernel running, as someone does who still reads it."""

    def process(self) -> psutil.Process | None:
        provisioner = self.km.provisioner if self.km else None
        pid = getattr(provisioner, "pid", None)
        return psutil.Process(pid) if pid else None


async def watch(learners: list[Learner], memory: Memory) -> None:
    while True:
        processes = [process for learner in learners if (process := learner.process())]
        looks = await asyncio.to_thread(lambda found=processes: [process.memory_full_info() for process in found])
        for look in looks:
            memory.rss, memory.uss = max(memory.rss, look.rss), max(memory.uss, look.uss)
            memory.pss = max(memory.pss, look.pss)
        memory.last = [look.pss for look in looks]
        memory.all_pss = max(memory.all_pss, sum(memory.last))
        await asyncio.sleep(INTERVAL)


async def run(path: Path, count: int) -> tuple[float, Memory]:
    """Seconds until the last of `count` learners has run every cell, and the memory that it took."""
    learners = [
        Learner(nbformat.read(path, as_version=4), timeout=None, resources={"metadata": {"path": str(path.parent)}})
        for _ in range(count)
    ]
    memory = Memory()
    watcher = asyncio.create_task(watch(learners, memory))
    started = time.perf_counter()
    try:
        await asyncio.gather(*(learner.async_execute(cleanup_kc=False) for learner in learners))
        return time.perf_counter() - started, memory
    finally:
        watcher.cancel()
        for learner in learners:
            if learner.km:
                await learner.km.shutdown_kernel(now=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--learners", nargs="+", type=int, default=[1])
    args = parser.parse_args()
    print("| lesson | learners | seconds | one kernel at its peak: RSS | USS | PSS | PSS of all at peak | at the end |")
    print("|---|---|---|---|---|---|---|---|")
    for path in args.notebooks:
        for count in args.learners:
            seconds, memory = asyncio.run(run(path, count))
            numbers = (memory.rss, memory.uss, memory.pss, memory.all_pss, sum(memory.last))
            cells = " | ".join(f"{number / MB:,.0f} MB" for number in numbers)
            print(f"| {path.stem} | {count} | {seconds:.0f} | {cells} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
