"""Commands: those that the checks run, and those that mend, as they are typed on this system."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Raises OSError where it can't be started, and subprocess.TimeoutExpired, after which the process is gone."""
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=seconds
    )


def python() -> str:
    """The command that starts this Python: `python` if that is the one on PATH."""
    found = shutil.which("python")
    if found and Path(found).parent == Path(sys.executable).parent:
        return "python"
    command = quoted(sys.executable)
    # PowerShell treats a quoted path as text unless it follows an &.
    return f"& {command}" if command.startswith('"') else command


def pip_install(*arguments: str) -> str:
    """Installs into this Python, even if it has no pip, as in environments made by uv. Puts requirements in quotes."""
    words = " ".join(f'"{word}"' if any(c in word for c in "<>=~! ") else word for word in arguments)
    if find_spec("pip") is None:
        if shutil.which("uv"):
            return f"uv pip install --python {quoted(sys.executable)} {words}"
        return f"{python()} -m ensurepip, then: {python()} -m pip install {words}"
    return f"{python()} -m pip install {words}"


def install_course(*options: str) -> str:
    return f"{pip_install(*options, '-r', 'requirements.txt')}   (in the course's folder)"


def set_variable(name: str, value: str) -> str:
    """For a terminal; JupyterLab inherits the variable when you start it from there."""
    if sys.platform == "win32":
        return f'$env:{name} = "{value}"'
    return f"export {name}={quoted(value)}"


def unset_variable(name: str) -> str:
    return f"Remove-Item Env:{name}" if sys.platform == "win32" else f"unset {name}"


def quoted(path: str | Path) -> str:
    """Quoted as one word, for PowerShell or a POSIX shell."""
    if sys.platform != "win32":
        return shlex.quote(str(path))
    return f'"{path}"' if re.search(r"[^\w.:\\/-]", str(path)) else str(path)
