"""What a command writes to and reads from: standard streams that may be closed or full, and text from a model."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

# All but tab and line break. Terminals obey them: some clear the screen, some type for the user.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """A text for the terminal: control characters are shown, as \\x1b, and not obeyed."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def open_closed_streams() -> None:
    """Let nothing stand where a standard stream is closed: the next file to be opened would take its place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  as long as the process


def fault_of(stream: TextIO, line_end: str = "") -> str:
    """Why a stream can't take what was written to it, and one more `line_end`; empty if it can.

    What is left unwritten is dropped: at exit Python would try once more, and complain in words of its own.
    """
    try:
        stream.write(line_end)
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error.strerror or str(error)
    return ""
