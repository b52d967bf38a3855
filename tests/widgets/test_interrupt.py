"""An interrupt of the kernel reaches work that a click started, while no cell runs and while one does."""

from __future__ import annotations

import pytest
from jupyter_client.manager import start_new_kernel

WORK = """
import ipywidgets, time
from llmlesson.widgets.base import LessonWidget

class Endless(LessonWidget):
    def to_html(self): return ""
    def _plain(self): return ""
    def _build(self): return [self._button("Run", self._run)]
    def _show(self): pass
    def _run(self):
        while not self._stopped:
            time.sleep(0.01)
        return "Stopped."

endless = Endless()
run = endless.ui.children[0]
run.click()
"""
HAS_STOPPED = "print(endless.wait(20), '-', endless._status.value)"
SECONDS = 60


@pytest.fixture
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def printed(client, code):
    """What a cell prints; fails where it raises."""
    said = []
    reply = client.execute_interactive(
        code, timeout=SECONDS, output_hook=lambda message: said.append(message["content"].get("text", ""))
    )
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(said)


def test_an_interrupt_stops_the_work_and_nothing_else(kernel):
    manager, client = kernel
    printed(client, WORK)
    printed(client, "import time; time.sleep(0.3)")  # the handler is in place once the cell has ended
    printed(client, "")
    manager.interrupt_kernel()
    assert printed(client, HAS_STOPPED).startswith("True")
    assert "Stopped." in printed(client, HAS_STOPPED)
    # And again: the kernel listens for as long as it lives, and an idle one minds no interrupt.
    printed(client, "run.click()")
    manager.interrupt_kernel()
    assert printed(client, HAS_STOPPED).startswith("True")
    manager.interrupt_kernel()
    assert printed(client, "print(1 + 1)") == "2\n"
