"""The hard conditions, made real by the Linux kernel, around one process and all that it starts.

Inside `Hard.command(…)` there is no network but loopback, one CPU, a limit on memory, and folders that nobody can
write, root included. Mounts, network and process ids are the process's own: all of it ends with the process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
CGROUP = Path("/sys/fs/cgroup")


def apart(*more: str) -> tuple[list[str], str]:
    """The command prefix for mounts and process ids of one's own; or, where they are not to be had, the reason.

    All that runs inside ends with the outer process. `more` are further options of unshare(1).
    """
    if sys.platform != "linux" or not shutil.which("unshare"):
        return [], "needs Linux namespaces"
    prefix = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child", *more]
    if os.geteuid() != 0:
        prefix += ["--user", "--map-root-user"]
    tried = subprocess.run([*prefix, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    return prefix, f"cannot make namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def memory_limit(nbytes: int) -> Iterator[tuple[list[str], str]]:
    """The command prefix under which all processes together get `nbytes` and no swap; or the reason why not.

    As root, a control group of version 1 below our own; else a scope of the user's systemd, where there is one.
    """
    group = own_memory_group()
    if group is not None:
        try:
            (group / "memory.limit_in_bytes").write_text(str(nbytes))
            if (group / "memory.memsw.limit_in_bytes").exists():
                (group / "memory.memsw.limit_in_bytes").write_text(str(nbytes))
            yield ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(group)], ""
        finally:
            while pids := (group / "cgroup.procs").read_text().split():
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.02)
            group.rmdir()
        return
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
    scope += ["-p", f"MemoryMax={nbytes}", "-p", "MemorySwapMax=0", "--"]
    works = shutil.which(scope[0]) and subprocess.run([*scope, "true"], capture_output=True).returncode == 0
    yield (scope, "") if works else ([], "no control group for memory to be had (needs root and version 1, or systemd)")


def own_memory_group() -> Path | None:
    """A new control group below that of this process, so that whoever limits us still does."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        ours = next(line.split(":", 2)[2] for line in lines if "memory" in line.split(":")[1].split(","))
        group = CGROUP / "memory" / ours.lstrip("/") / f"llmlesson-test-{uuid.uuid4().hex[:8]}"
        group.mkdir()
    except (OSError, StopIteration):
        return None
    return group


class Hard:
    """All conditions that can be had here; `missing` says why for each that can't."""

    def __init__(self, namespaces: list[str], limit: list[str], missing: dict[str, str]) -> None:
        self._namespaces, self._limit, self.missing = namespaces, limit, missing

    def command(self, read_only: Sequence[Path], *command: str) -> list[str]:
        """`command` with the folders in `read_only` such that nobody can write there."""
        inside = [sys.executable, str(HERE / "inside.py"), *map(str, read_only), "--"]
        return [*self._limit, *self._namespaces, *inside, *command]


@contextmanager
def hard_conditions(memory: int) -> Iterator[Hard]:
    namespaces, no_namespaces = apart("--net")
    with memory_limit(memory) as (limit, no_limit):
        yield Hard(namespaces, limit, {"namespaces": no_namespaces, "memory": no_limit})


def clean_environment(home: Path, **variables: str) -> dict[str, str]:
    """This environment without what names other folders for Jupyter, caches or the course, or sets threads."""
    strange = ("JUPYTER", "IPYTHON", "XDG_CACHE", "XDG_CONFIG", "XDG_DATA", "LLMLESSON_HOME", "OMP_", "HF_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    return kept | {"HOME": str(home)} | variables
