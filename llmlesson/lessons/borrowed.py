"""Notices when an answer to an exercise just calls the course's own function."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

COURSE = Path(__file__).resolve().parents[1]
# What exercises hand out, and what draws pictures. Calling anything else would be borrowing the work itself.
ALLOWED = ("lessons", "views", "widgets")


@contextmanager
def calls_noticed() -> Iterator[list[str]]:
    """Names of the course's functions that code outside the course calls inside the `with`, as "attention.attend"."""
    found: list[str] = []

    def notice(frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or frame.f_code.co_name == "<module>" or not _is_the_work(frame.f_code.co_filename):
            return
        caller = frame.f_back
        if caller is not None and not _inside(caller.f_code.co_filename):
            module = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
            found.append(f"{module}.{frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(notice)
    try:
        yield found
    finally:
        sys.setprofile(before)


def is_the_courses(function: Any) -> bool:
    """Whether a function or class is itself one of the course's."""
    module = str(getattr(function, "__module__", "") or "")
    return module.startswith("llmlesson.") and module.split(".")[1] not in ALLOWED


def _inside(filename: str) -> bool:
    return filename.startswith((f"{COURSE}/", f"{COURSE}\\"))


def _is_the_work(filename: str) -> bool:
    if not _inside(filename):
        return False
    parts = Path(filename).relative_to(COURSE).parts
    return len(parts) > 1 and parts[0] not in ALLOWED
