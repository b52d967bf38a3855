"""Where the cache may lie, and environments in which a fetch must work all the same."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from resilience.hard import apart
from tiny_model import Tiny

from llmlesson import LessonError
from llmlesson.files.fetch import damaged_files, default_model_folder, ensure_default_model, is_cached


def test_folder_is_the_platforms_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    cache = Path(platformdirs.user_cache_dir("llmlesson", appauthor=False))
    monkeypatch.delenv("LLMLESSON_HOME", raising=False)
    assert default_model_folder() == cache / "models" / "smollm2-135m"
    monkeypatch.setenv("LLMLESSON_HOME", "")
    assert default_model_folder() == cache / "models" / "smollm2-135m"
    monkeypatch.setenv("LLMLESSON_HOME", "~/somewhere")
    assert default_model_folder() == Path.home() / "somewhere" / "models" / "smollm2-135m"


def test_a_relative_folder_is_refused_with_the_full_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The notebooks' folder is not the one that `llmlesson fetch` was started in: there would be two caches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLMLESSON_HOME", "cache")
    with pytest.raises(LessonError) as error:
        ensure_default_model()
    assert str(error.value).endswith(f"Set it to a full path, such as {tmp_path / 'cache'}")


def test_the_home_of_nobody_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMLESSON_HOME", "~nobody-of-this-name/cache")
    with pytest.raises(LessonError, match="LLMLESSON_HOME to the full path"):
        is_cached()


@pytest.mark.skipif(sys.platform != "linux", reason="user ids of Linux")
def test_a_user_without_a_home(tiny: Tiny) -> None:
    """As in a container that runs under any user id: no HOME, and no entry in the list of users."""
    prefix = ["setpriv", "--reuid=61003", "--regid=61003", "--clear-groups"]
    # What may be read is not the question here: the interpreter may lie where only root looks.
    prefix += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and setpriv, to be a user that is not listed")
    environ = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [*prefix, *tiny.command("fetch", "--from", str(tiny.wheel))]

    result = subprocess.run(command, env=environ | {"LLMLESSON_HOME": ""}, capture_output=True, text=True)
    assert result.returncode == 1
    assert "your user has no home folder here. Set the environment variable LLMLESSON_HOME" in result.stderr

    tiny.home.mkdir()
    tiny.home.chmod(0o777)
    result = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (result.returncode, damaged_files()) == (0, []), result.stderr


def real_pip(tiny: Tiny, **more: str) -> dict[str, str]:
    return {"PIP_FIND_LINKS": str(tiny.wheel.parent), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, **more}


def bind(folder: str) -> str:
    return shlex.join(["mount", "--bind", folder, folder])


def remount(folder: str, how: str) -> str:
    return shlex.join(["mount", "-o", f"remount,bind,{how}", folder])


def test_spaces_and_letters_of_all_kinds_in_the_path(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.home = tmp_path / "Jürgen's models" / "模型 (1)"
    tiny.home.parent.mkdir()
    monkeypatch.delenv("PYTHONUTF8", raising=False)
    plain = {"LANG": "C", "LC_ALL": "C"}  # the least that a terminal offers
    result = tiny.run("fetch", pip=None, **real_pip(tiny, **plain))
    assert result.returncode == 0, result.stderr
    assert (tiny.folder / "model.safetensors").exists()
    assert "intact" in tiny.run("fetch", **plain).stdout


def test_no_place_for_temporary_files_but_the_cache(tiny: Tiny) -> None:
    prefix, reason = apart()
    if reason:
        pytest.skip(reason)
    tiny.home.mkdir()
    places = {"/tmp", "/var/tmp", "/usr/tmp", tempfile.gettempdir(), str(tiny.home.parent)}
    mounts = [f"{bind(place)} && {remount(place, 'ro')}" for place in sorted(places) if os.path.isdir(place)]
    mounts += [bind(str(tiny.home)), remount(str(tiny.home), "rw"), "cd /proc"]
    script = " && ".join([*mounts, 'exec "$@"'])
    look = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    result = subprocess.run([*prefix, "sh", "-c", script, "sh", *look], capture_output=True, text=True)
    assert "No usable temporary directory" in result.stderr
    command = [*prefix, "sh", "-c", script, "sh", *tiny.command("fetch")]
    result = subprocess.run(command, env=os.environ | real_pip(tiny), capture_output=True, text=True)
    assert (result.returncode, damaged_files(), tiny.leftovers()) == (0, [], []), result.stderr


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need rights on Windows")
@pytest.mark.parametrize("link", ["home", "models", "model"])
def test_a_link_to_another_disk(tiny: Tiny, tmp_path: Path, link: str) -> None:
    """Is followed; but a model behind a link, which others may use, is replaced here and left alone there."""
    place = {"home": tiny.home, "models": tiny.models, "model": tiny.folder}[link]
    elsewhere = tmp_path / "another disk"
    elsewhere.mkdir()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere)
    (elsewhere / "kept").touch()
    ensure_default_model()
    assert (is_cached(), damaged_files()) == (True, [])
    assert place.is_symlink() == (link != "model")
    assert (elsewhere / "kept").exists()
    assert len(list(elsewhere.iterdir())) == {"home": 2, "models": 3, "model": 1}[link]


def test_a_file_system_that_is_read_only(tiny: Tiny) -> None:
    """Where not even root can write. A model that is there works; one that is not is asked for elsewhere."""
    prefix, reason = apart()
    if reason:
        pytest.skip(reason)
    tiny.home.mkdir()
    script = f'{bind(str(tiny.home))} && {remount(str(tiny.home), "ro")} && exec "$@"'
    command = [*prefix, "sh", "-c", script, "sh", *tiny.command("fetch")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    expected = f"llmlesson: Can't write the model to {tiny.models} (Read-only file system). Make that folder"
    assert result.stderr.startswith(expected)
    assert "LLMLESSON_HOME" in result.stderr
    assert tiny.pip_runs() == []

    ensure_default_model()
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"The model is in {tiny.folder} and intact.\n"), result.stderr
