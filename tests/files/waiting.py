import subprocess
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Until `condition()` is true. Fails where `process` ends before, or nothing happens for a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
