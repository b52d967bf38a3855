"""For servers that tests start: end when standard input closes, so that none outlives the process that started it."""

import os
import signal
import sys
import threading


def end_with_parent() -> None:
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)
