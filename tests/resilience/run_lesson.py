"""`python run_lesson.py NOTEBOOK`: runs all its cells in a real kernel. Prints JSON with what failed, if anything.

A cell fails if it raises an error. A cell with the tag nbval-check-output also fails if its output isn't the stored
one, compared as nbval does.
peak_bytes: the most memory that the kernel ever had resident (VmHWM, which includes the libraries that it maps).
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

CELL_SECONDS = 300
CHECKED = "nbval-check-output"
# Kinds of output that nbval doesn't compare either: numbers of widgets are random, and pictures differ in their bytes.
NOT_COMPARED = {"application/vnd.jupyter.widget-view+json", "image/png", "image/jpeg"}


def run(path: Path) -> dict[str, object]:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(path.parent)}})
    failed, started = "", time.monotonic()
    peak = 0
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            stored = by_kind(cell.get("outputs", []))
            try:
                client.execute_cell(cell, index)
                peak = peak_bytes(client.km.provisioner.pid)
            except CellExecutionError as error:
                failed = f"cell {index}: {error.ename}: {error.evalue}"
            except CellTimeoutError:
                failed = f"cell {index}: not done after {CELL_SECONDS} s"
            except DeadKernelError:
                why = "was killed, because there was too little memory" if killed_for_memory() else "ended by itself"
                failed = f"cell {index}: the kernel {why}"
            if not failed and CHECKED in cell.metadata.get("tags", []):
                failed = difference(index, stored, by_kind(cell.outputs))
            if failed:
                break
    return {"failed": failed, "peak_bytes": peak, "seconds": time.monotonic() - started}


def by_kind(outputs: list[NotebookNode]) -> dict[str, list[str]]:
    """{stream's name or MIME type: texts in their order}. The parts of a stream are joined, however it was sent."""
    found: dict[str, list[str]] = defaultdict(list)
    for output in outputs:
        if output.output_type == "stream":
            found[output.name] = ["".join([*found[output.name], output.text])]
        for kind, data in output.get("data", {}).items():
            if kind not in NOT_COMPARED:
                found[kind].append(data if isinstance(data, str) else json.dumps(data, sort_keys=True))
    return found


def difference(index: int, stored: dict[str, list[str]], shown: dict[str, list[str]]) -> str:
    """What is wrong with the output of a cell; "" if it is the stored one."""
    for kind in sorted(stored.keys() | shown.keys()):
        if stored.get(kind) != shown.get(kind):
            return f"cell {index}: {kind} is {cut(shown.get(kind))}, stored is {cut(stored.get(kind))}"
    return ""


def cut(texts: list[str] | None) -> str:
    return str(texts) if len(str(texts)) < 1000 else f"{str(texts)[:1000]}…"


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
