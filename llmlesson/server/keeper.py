"""Runs a program, and ends it when the process that started both ends: `python keeper.py PROGRAM ARGUMENT...`.

For programs that don't watch their own standard input (see `replica`). The keeper waits until its own input ends, which
happens when the process at the other end closes it or dies. On Linux the program also ends if someone kills the keeper.
It imports only the standard library, and runs as a file, so that it starts quickly.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def _die_with_the_keeper() -> None:
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def main() -> None:
    posix = {"preexec_fn": _die_with_the_keeper} if os.name == "posix" else {}
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, **posix)  # type: ignore[call-overload]

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        program.kill()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    os._exit(program.wait() & 0xFF)


if __name__ == "__main__":
    main()
