"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One line of the report. `mend` is the command, or what to do; empty where the status is "ok".

    A warning is something that the course runs with. A problem stops it, or will.
    """

    status: Literal["ok", "warning", "problem"]
    name: str  # what was looked at, in a word
    what: str
    mend: str = ""


def ok(name: str, what: str) -> Finding:
    return Finding("ok", name, what)


def warning(name: str, what: str, mend: str) -> Finding:
    return Finding("warning", name, what, mend)


def problem(name: str, what: str, mend: str) -> Finding:
    return Finding("problem", name, what, mend)
