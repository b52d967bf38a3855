"""A process that ends when this one does, however this one ends: its standard input connects the two."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


class Child:
    """A Python program that ends when its standard input does, as `replica` and `keeper` do.

    It gets its own process group. Otherwise, interrupting a notebook's cell would interrupt it as well.
    """

    def __init__(self, arguments: Sequence[str], **options: Any) -> None:
        windows = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            creationflags=windows,
            **options,
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tell(self, line: str) -> None:
        """Send it a line. Does nothing if it has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, or its input was closed
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """End it at once, like a crash: it has no time to tell anyone."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 10.0) -> None:
        """Close its input, wait until it has ended, and kill it if it takes longer."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
