"""`python run_lesson.py NOTEBOOK`: all its cells in a real kernel. Prints JSON with what failed, if anything.

peak_bytes: the most memory that the kernel ever had resident (VmHWM, which includes the libraries that it maps).
"""

import json
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

CELL_SECONDS = 300


def run(path: Path) -> dict[str, object]:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(path.parent)}})
    failed, started = "", time.monotonic()
    peak = 0
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, index)
                peak = peak_bytes(client.km.provisioner.pid)
            except CellExecutionError as error:
                failed = f"cell {index}: {error.ename}: {error.evalue}"
            except CellTimeoutError:
                failed = f"cell {index}: not done after {CELL_SECONDS} s"
            except DeadKernelError:
                why = "killed, for it needed more memory than there is" if killed_for_memory() else "ended by itself"
                failed = f"cell {index}: the kernel was {why}"
            if failed:
                break
    return {"failed": failed, "peak_bytes": peak, "seconds": time.monotonic() - started}


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def killed_for_memory() -> bool:
    """Whether the limit of this process's control group (version 1 or 2) has killed a process."""
    root = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        for file in (root / "memory" / group[1:] / "memory.oom_control", root / group[1:] / "memory.events"):
            if ("memory" in controllers or not controllers) and file.exists():
                counts = dict(entry.split() for entry in file.read_text().splitlines())
                if int(counts.get("oom_kill", 0)) > 0:
                    return True
    return False


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
