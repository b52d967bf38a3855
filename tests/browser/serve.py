"""JupyterLab that ends when its standard input closes, so that it never outlives the process that started it."""

import os
import signal
import sys
import threading

from jupyterlab.labapp import main


def stop_when_parent_is_gone() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=stop_when_parent_is_gone, daemon=True).start()
    sys.exit(main())
