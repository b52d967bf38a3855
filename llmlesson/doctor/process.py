"""Another program, and what it says."""

from __future__ import annotations

import subprocess


def run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Raises OSError where it can't be started, and subprocess.TimeoutExpired, after which the process is gone."""
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=seconds
    )
