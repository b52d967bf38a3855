"""All checks, in the order in which they matter."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from llmlesson.doctor.commands import install_course
from llmlesson.doctor.finding import Finding, problem
from llmlesson.doctor.report import to_text

# The name of what is looked at, and the function that does; a function gives one finding, or several.
# Its module is imported when its turn comes, since what that needs may be what is missing.
CHECKS = {
    "Python": "python.version",
    "packages": "python.packages",
    "PyTorch": "gpu.torch_and_gpu",
    "cache folder": "model.cache",
    "model": "model.model",
    "memory": "processor.memory",
    "processor": "processor.processor",
    "JupyterLab": "jupyter.lab",
    "kernel": "jupyter.kernel",
    "widgets": "jupyter.widgets",
    "plots": "jupyter.plots",
    "proxy": "network.proxy",
}
ONLINE = {"online": "network.sources"}
QUICK = {
    "Python": "python.version",
    "packages": "python.packages",
    "PyTorch": "gpu.quick_torch_and_gpu",
    "cache folder": "model.cache",
    "model": "model.quick_model",
    "memory": "processor.memory",
    "processor": "processor.processor",
}


def examine(online: bool = False) -> list[Finding]:
    """Look at everything; with `online`, also ask the two sources of the model. Changes nothing, never raises."""
    checks = CHECKS | (ONLINE if online else {})
    # At once, since most of the time goes into waiting for other processes and for the disk.
    with ThreadPoolExecutor() as pool:
        found = pool.map(attempt, checks.keys(), checks.values())
    return [finding for findings in found for finding in findings]


def attempt(name: str, check: str) -> list[Finding]:
    """What a check found. An error in it is a finding too, and the others still run."""
    module, _, function = check.rpartition(".")
    try:
        found: Finding | Iterable[Finding] = getattr(import_module(f"llmlesson.doctor.{module}"), function)()
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as error:
        what = f"the check itself failed: {type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            return [problem(name, what, install_course())]
        return [problem(name, what, "open an issue in the course's repository, with this line")]


def check_setup() -> None:
    """Print the short form, for the first cell of a notebook: no network, no other process, nothing changed."""
    findings = [finding for name, check in QUICK.items() for finding in attempt(name, check)]
    # A folder that is fine is no news here.
    shown = [finding for finding in findings if finding.name != "cache folder" or finding.status != "ok"]
    print(to_text(shown, width=100))
    if any(finding.mend for finding in shown):
        print("Commands are for a terminal; then start JupyterLab from it anew.")
