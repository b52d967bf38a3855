"""What a check found, in words."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One line of the report. `mend` is the command that fixes it, or what to do; empty if the status is "ok".

    The course still runs with a warning. A problem stops it, or will.
    """

    status: Literal["ok", "warning", "problem"]
    name: str  # what was checked, in a word
    what: str
    mend: str = ""


def ok(name: str, what: str) -> Finding:
    return Finding("ok", name, what)


def warning(name: str, what: str, mend: str) -> Finding:
    return Finding("warning", name, what, mend)


def problem(name: str, what: str, mend: str) -> Finding:
    return Finding("problem", name, what, mend)


def short(path: str | Path) -> str:
    """The path with `~` for the home folder, for reading."""
    path, home = Path(path), Path(os.path.expanduser("~"))
    return str(Path("~") / path.relative_to(home)) if path != home and path.is_relative_to(home) else str(path)
