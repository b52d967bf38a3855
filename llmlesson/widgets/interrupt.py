"""Interrupting the kernel stops the work of its widgets.

Python delivers an interrupt to the main thread, and ipykernel lets it through only while a cell runs. Work that a click
started runs in its own thread, often while no cell runs, so it would not notice.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import Any

AGAIN_SECONDS = 0.05  # until the next attempt, while a cell runs

_running: set[threading.Event] = set()  # each stops one piece of work
_listening = False


def stop_on_interrupt(stop: threading.Event) -> None:
    """Set `stop` when the kernel is interrupted, until `forget(stop)`. Does nothing if there is no kernel."""
    _running.add(stop)
    with suppress(ImportError, AttributeError):
        from IPython.core.getipython import get_ipython

        loop = get_ipython().kernel.io_loop
        loop.add_callback(_listen, loop)  # signals can only be handled in the main thread, where this loop runs


def forget(stop: threading.Event) -> None:
    """The work that `stop` stops has ended."""
    _running.discard(stop)


def _listen(loop: Any) -> None:
    global _listening
    if _listening or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # The kernel handles a message, and puts back the handler of before when it is done.
        loop.call_later(AGAIN_SECONDS, _listen, loop)
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        for stop in list(_running):
            stop.set()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, handle)
    _listening = True
