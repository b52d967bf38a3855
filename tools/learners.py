"""How much memory and time a lesson takes with several learners at once, each in their own process:

    python tools/learners.py notebooks/00_start_here.ipynb --learners 1 2 4

For each number of learners, all start together with one kernel each, and run every cell. The table says how long the
last one took, how much CPU time each learner used, and how much memory the kernels held. For Linux.

There are three ways to count a process's memory. RSS: all its pages in memory. USS: those that no other process uses.
PSS: its own, plus its part of shared ones; the PSS of all processes is what the machine needs. In MB of 10^6 bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

MB = 1e6
INTERVAL = 0.5  # seconds between two samples


@dataclass
class Cost:
    """Bytes and seconds. Peaks are those of the largest kernel; `all_pss` and `last_pss` are for all together."""

    seconds: float = 0
    cpu_seconds: float = 0  # all kernels together
    rss: int = 0
    uss: int = 0
    pss: int = 0
    all_pss: int = 0
    last_pss: int = 0

    def look(self, kernels: list[psutil.Process]) -> None:
        looks = [kernel.memory_full_info() for kernel in kernels]
        if looks:
            self.rss = max(self.rss, *(look.rss for look in looks))
            self.uss = max(self.uss, *(look.uss for look in looks))
            self.pss = max(self.pss, *(look.pss for look in looks))
        self.last_pss = sum(look.pss for look in looks)
        self.all_pss = max(self.all_pss, self.last_pss)
        self.cpu_seconds = sum(sum(kernel.cpu_times()[:2]) for kernel in kernels)


def kernels_of(clients: list[NotebookClient]) -> list[psutil.Process]:
    provisioners = [client.km.provisioner for client in clients if client.km]
    return [psutil.Process(pid) for provisioner in provisioners if (pid := getattr(provisioner, "pid", None))]


async def watch(clients: list[NotebookClient], cost: Cost) -> None:
    while True:
        await asyncio.to_thread(cost.look, kernels_of(clients))
        await asyncio.sleep(INTERVAL)


async def run(path: Path, learners: int) -> Cost:
    """The cost until the last learner has run every cell. All kernels stay alive until then."""
    resources = {"metadata": {"path": str(path.parent)}}
    clients = [
        NotebookClient(nbformat.read(path, as_version=4), timeout=None, resources=resources) for _ in range(learners)
    ]
    cost = Cost()
    watcher = asyncio.create_task(watch(clients, cost))
    started = time.perf_counter()
    try:
        await asyncio.gather(*(client.async_execute(cleanup_kc=False) for client in clients))
        cost.seconds = time.perf_counter() - started
        cost.look(kernels_of(clients))
        return cost
    finally:
        watcher.cancel()
        for client in clients:
            if client.km:
                await client.km.shutdown_kernel(now=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--learners", nargs="+", type=int, default=[1])
    args = parser.parse_args()
    print(
        "| lesson | learners | seconds | CPU seconds each | one kernel's peak: RSS | USS | PSS | all: PSS, peak | end |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for path in args.notebooks:
        for learners in args.learners:
            cost = asyncio.run(run(path, learners))
            nbytes = (cost.rss, cost.uss, cost.pss, cost.all_pss, cost.last_pss)
            cells = " | ".join(f"{number / MB:,.0f} MB" for number in nbytes)
            print(
                f"| {path.stem} | {learners} | {cost.seconds:.0f} | {cost.cpu_seconds / learners:.0f} | {cells} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
