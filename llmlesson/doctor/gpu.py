"""PyTorch, and whether it can use this machine's GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmlesson.doctor import torch_probe
from llmlesson.doctor.commands import install_course, pip_install, run, set_variable
from llmlesson.doctor.finding import Finding, ok, problem, warning

PROBE_SECONDS = 60  # a first import, with a virus scanner at work
DRIVER_SECONDS = 15
# Bytes: the weights in float32, as lesson 00 loads them, and the same again for CUDA itself and the cache. An estimate.
GPU_NEED = 1_100_000_000
OTHER_BUILD = "choose another build under Get started on pytorch.org (or keep this one: the CPU is enough)"


@dataclass(frozen=True)
class Driver:
    """What NVIDIA's own tool reports. `error` is set if it can't reach the driver."""

    gpu: str = ""
    version: str = ""
    error: str = ""


def torch_and_gpu() -> Iterator[Finding]:
    """PyTorch and the GPU, checked from another process."""
    return judge(probe_apart())


def quick_torch_and_gpu() -> Iterator[Finding]:
    """The same in this process: quick if torch has been imported already, or is about to be."""
    return judge(torch_probe.probe())


def judge(facts: dict[str, Any]) -> Iterator[Finding]:
    yield pytorch(facts)
    if "error" not in facts:
        yield gpu(facts, find_driver())


def probe_apart() -> dict[str, Any]:
    """`torch_probe.probe()` in a separate process. `error` also covers a process that dies or doesn't finish."""
    # -P: don't import a file called torch.py from the current folder.
    command = [sys.executable, "-P", torch_probe.__file__]
    try:
        result = run(command, PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"Importing it took longer than {PROBE_SECONDS} s."}
    try:
        return dict(json.loads(result.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        last = (result.stderr.strip().splitlines() or [""])[-1]
        return {"error": f"the process that imported it exited with status {result.returncode}. {last}".strip()}


def pytorch(facts: dict[str, Any]) -> Finding:
    """Whether torch and the engine's other packages can be imported."""
    if error := facts.get("error"):
        return problem("PyTorch", f"can't be imported. {error}", mend_import(error))
    build = f"for CUDA {facts['cuda']}" if facts["cuda"] else "for CPUs"
    if error := facts.get("engine_error"):
        what = f"{facts['version']} works, but the engine can't be imported. {error}"
        missing = "No module named" in error
        return problem("PyTorch", what, install_course(*([] if missing else ["--force-reinstall"])))
    return ok("PyTorch", f"{facts['version']}, {build}; PyTorch and the engine can be imported")


def mend_import(error: str) -> str:
    if "libgomp" in error:
        return "sudo apt-get install libgomp1   (or your system's package with libgomp.so.1)"
    if sys.platform == "win32" and ("DLL" in error or "WinError" in error):
        return "winget install Microsoft.VCRedist.2015+.x64   (torch needs Microsoft's C++ runtime)"
    return pip_install("--force-reinstall", "torch")


def gpu(facts: dict[str, Any], driver: Driver | None) -> Finding:
    """facts: from `torch_probe`, for a torch that can be imported. driver: None if NVIDIA's is not installed."""
    use_cpu = set_variable("CUDA_VISIBLE_DEVICES", "-1")
    if error := facts.get("gpu_error"):
        return problem("GPU", f"PyTorch fails on it. {error}", f"{use_cpu}   (the CPU is enough)")
    if facts["gpus"]:
        device = facts["gpus"][0]  # the one that the course uses
        what = f"{device['name']}, {device['free'] / 1e9:.1f} of {device['total'] / 1e9:.1f} GB free"
        if driver and driver.version:
            what += f", driver {driver.version}"
        if not runs_on(facts["architectures"], tuple(device["capability"])):
            major, minor = device["capability"]
            what = f"{device['name']}: this PyTorch has no code for its compute capability {major}.{minor}"
            return problem("GPU", what, f"{use_cpu}\n{OTHER_BUILD}")
        if device["free"] < GPU_NEED:
            mend = f"{use_cpu}\n(to use the CPU; or close other programs that use the GPU: nvidia-smi lists them)"
            return warning("GPU", f"{what}; the course needs about {GPU_NEED / 1e9:.1f} GB", mend)
        return ok("GPU", what)
    if driver is None or not (driver.gpu or driver.error):
        return ok("GPU", "no NVIDIA GPU found; the CPU is enough")
    if driver.error:
        return warning("GPU", f"the NVIDIA driver doesn't respond: {driver.error}", "restart, or reinstall the driver")
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return ok("GPU", f"{driver.gpu}, hidden by CUDA_VISIBLE_DEVICES; the CPU is enough")
    if not facts["cuda"]:
        return warning("GPU", f"this machine has {driver.gpu}, but this PyTorch is a build for CPUs", OTHER_BUILD)
    reason = " ".join(facts["warnings"]) or f"PyTorch gives no reason (driver {driver.version})"
    mend = f"update the NVIDIA driver, or\n{OTHER_BUILD}"
    return warning("GPU", f"this PyTorch for CUDA {facts['cuda']} can't use {driver.gpu}: {reason}", mend)


def runs_on(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Whether a build for `architectures`, such as sm_86 or compute_90, has code for a GPU.

    Machine code (sm) runs on the same major version from its minor version up, or on exactly one version if a letter
    follows; compute is translated for any later version. Other names (AMD's) are accepted.
    """
    known = [match for name in architectures if (match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", name))]
    for kind, major, minor, letter in (match.groups() for match in known):
        built_for = int(major), int(minor)
        if letter:
            fits = built_for == capability
        elif kind == "sm":
            fits = built_for[0] == capability[0] and built_for <= capability
        else:
            fits = built_for <= capability
        if fits:
            return True
    return not known


def find_driver() -> Driver | None:
    """Asks nvidia-smi about the first GPU. None if there is no such program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        result = run(command, DRIVER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Driver(error=f"nvidia-smi: {type(error).__name__}")
    lines = (result.stdout.strip() or result.stderr.strip()).splitlines() or [""]
    if "No devices were found" in lines[0]:
        return Driver()
    if result.returncode:
        return Driver(error=lines[0] or f"nvidia-smi exited with status {result.returncode}")
    name, _, version = lines[0].partition(", ")
    return Driver(name, version)
