"""The machine that a measurement was made on."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import torch


def device_name(device: torch.device) -> str:
    """The marketing name of the GPU, or of the CPU with the instruction set that torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{cpu_name()} ({torch.backends.cpu.get_cpu_capability()})"


def cpu_name() -> str:
    """The CPU's name as the system reports it, or at least its architecture."""
    try:
        if platform.system() == "Darwin":
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return platform.processor() or platform.machine()
