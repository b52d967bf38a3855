"""All checks, in the order in which they matter."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from llmlesson.doctor.commands import install_course
from llmlesson.doctor.finding import Finding, problem
from llmlesson.doctor.report import to_text

# What is checked, and the function that checks it. A function returns one finding or several. Its module is imported
# only then, because a package that it needs may be the one that is missing.
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
    "balancer": "balancer.balancer",
    "loopback": "network.loopback",
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
    """Run all checks; with `online`, also ask the two sources of the model. Changes nothing, never raises."""
    checks = CHECKS | (ONLINE if online else {})
    # In parallel: most of the time is spent waiting for other processes and for the disk.
    with ThreadPoolExecutor() as pool:
        found = pool.map(attempt, checks.keys(), checks.values())
    return [finding for findings in found for finding in findings]


def attempt(name: str, check: str) -> list[Finding]:
    """What a check found. An error in the check is a finding too, and the other checks still run."""
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
    """Print the short version, for a notebook's first cell. Uses no network or other process, changes nothing."""
    findings = [finding for name, check in QUICK.items() for finding in attempt(name, check)]
    # A folder without problems isn't worth a line here.
    shown = [finding for finding in findings if finding.name != "cache folder" or finding.status != "ok"]
    print(to_text(shown, width=100))
    if any(finding.mend for finding in shown):
        print("Run these commands in a terminal, then start JupyterLab again from it.")
