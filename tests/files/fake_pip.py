"""Stands in for pip: `python fake_pip.py download … --dest FOLDER REQUIREMENT`, told by FAKE_PIP_DOES what to do.

deliver: copy FAKE_PIP_WHEEL to FOLDER · gate: leave half the wheel in TMPDIR, deliver once the file FAKE_PIP_GATE is
there · offline, full, absent: fail with pip's words · hang: leave half a file in TMPDIR and wait.
Each run appends its process id to FAKE_PIP_RUNS.
"""

import os
import shutil
import sys
import time
from pathlib import Path

OFFLINE = "connection broken by 'NewConnectionError(...)': /simple/"
ABSENT = "ERROR: No matching distribution found for tiny-model==1.0"

if __name__ == "__main__":
    does = os.environ["FAKE_PIP_DOES"]
    dest = Path(sys.argv[sys.argv.index("--dest") + 1])
    with open(os.environ["FAKE_PIP_RUNS"], "a") as runs:
        runs.write(f"{os.getpid()}\n")
    if does == "offline":
        sys.exit(f"WARNING: Retrying after {OFFLINE}\n{ABSENT}")
    if does == "absent":
        sys.exit(ABSENT)
    if does == "full":
        sys.exit("OSError: [Errno 28] No space left on device")
    if does == "hang":
        Path(os.environ["TMPDIR"], "half.whl").write_bytes(bytes(1000))
        time.sleep(600)
    if does == "gate":
        wheel = Path(os.environ["FAKE_PIP_WHEEL"]).read_bytes()
        Path(os.environ["TMPDIR"], "part.whl").write_bytes(wheel[: len(wheel) // 2])
        deadline = time.monotonic() + 60
        while not os.path.exists(os.environ["FAKE_PIP_GATE"]):
            if time.monotonic() > deadline:
                sys.exit("nobody opened the gate")
            time.sleep(0.02)
    dest.mkdir(exist_ok=True)
    shutil.copy(os.environ["FAKE_PIP_WHEEL"], dest)
