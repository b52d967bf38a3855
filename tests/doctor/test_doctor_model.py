from __future__ import annotations

import pytest

from llmlesson.doctor import model
from llmlesson.doctor.finding import short
from llmlesson.files import fetch
from llmlesson.files.folders import write_error


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The model's folder under a new LLMLESSON_HOME, with a file in it, intact."""
    monkeypatch.setenv("LLMLESSON_HOME", str(tmp_path))
    folder = fetch.default_model_folder()
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    fetch.write_manifest(folder)
    return folder


def test_intact(folder):
    assert model.model().status == model.quick_model().status == "ok"
    assert model.cache().status == "ok"


def test_not_here_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("LLMLESSON_HOME", str(tmp_path))
    finding = model.model()
    assert (finding.status, finding.mend) == ("warning", "llmlesson fetch")
    assert model.quick_model().status == "ok"
    assert model.cache().status == "ok"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"w", None], ids=["cut short", "missing"])
def test_damaged(folder, content):
    file = folder / "model.safetensors"
    file.write_bytes(content) if content else file.unlink()
    for finding in (model.model(), model.quick_model()):
        assert (finding.status, finding.mend) == ("problem", "llmlesson fetch")
    assert "model.safetensors" in model.model().what


def test_damaged_where_somebody_else_keeps_it(folder, monkeypatch):
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(model, "write_error", lambda path: "Permission denied" if path == folder.parent else None)
    for finding in (model.model(), model.quick_model()):
        mend, other = finding.mend.splitlines()
        assert mend == f"{fetch.refetch(folder)}   (must be run by the owner of that folder)"
        assert "LLMLESSON_HOME" in other


def test_changed_at_its_size_takes_the_full_look(folder, monkeypatch):
    (folder / "model.safetensors").write_bytes(b"WEIGHTS")
    assert model.model().status == "problem"
    monkeypatch.setattr(fetch, "sha256_of", lambda path: pytest.fail("the quick look reads no weights"))
    assert model.quick_model().status == "ok"


def test_a_read_only_folder_is_fine_with_the_model_and_a_problem_without(folder, monkeypatch):
    monkeypatch.setattr(model, "write_error", lambda path: "Read-only file system")
    finding = model.cache()
    assert finding.status == "ok"
    assert "read-only" in finding.what
    (folder / fetch.MANIFEST).unlink()
    finding = model.cache()
    assert finding.status == "problem"
    assert "Read-only file system" in finding.what
    assert "LLMLESSON_HOME" in finding.mend


def test_a_full_disk_matters_only_without_the_model(folder, monkeypatch):
    monkeypatch.setattr(model, "free_space", lambda path: fetch.MODEL.disk_needed - 1)
    assert model.cache().status == "ok"
    (folder / fetch.MANIFEST).unlink()
    finding = model.cache()
    assert finding.status == "problem"
    assert "fetching the model needs 371 MB" in finding.what
    assert finding.mend.endswith("A_FOLDER_WITH_ROOM") or '"A_FOLDER_WITH_ROOM"' in finding.mend


def test_a_folder_that_fetch_refuses(monkeypatch):
    monkeypatch.setenv("LLMLESSON_HOME", "relative")
    finding = model.cache()
    assert finding.status == "problem"
    assert "LLMLESSON_HOME is relative" in finding.what
    assert "LLMLESSON_HOME" in finding.mend
    assert model.model().mend == "llmlesson fetch"
    assert model.quick_model().status == "ok"
    assert not model.is_here()


def test_a_folder_on_a_drive_that_is_not_there(tmp_path, monkeypatch):
    """Only Windows has such: elsewhere there is always the root folder."""
    monkeypatch.setenv("LLMLESSON_HOME", str(tmp_path / "drive"))
    monkeypatch.setattr("os.path.exists", lambda path: False)
    finding = model.cache()
    assert finding.status == "problem"
    assert "(No such file" in finding.what


def test_a_folder_of_somebody_who_lets_nobody_look(folder, monkeypatch):
    assert model.is_here()
    monkeypatch.setattr(fetch, "readable", lambda path: False)
    for finding in (model.cache(), model.model(), model.quick_model()):
        assert finding.status == "problem"
        assert fetch.permit(folder) in finding.mend
        assert "LLMLESSON_HOME" in finding.mend


def test_the_folder_named_instead_has_room(tmp_path, monkeypatch):
    home, here, temporary = (tmp_path / name for name in ("home", "here", "temporary"))
    for path in (home, here, temporary):
        path.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setattr(model.tempfile, "gettempdir", lambda: str(temporary))
    monkeypatch.chdir(here)
    assert str(home / "llmlesson") in model.other_folder()
    full = {home: 0, here: 10**9, temporary: 10**9}
    monkeypatch.setattr(model, "free_space", lambda path: full[path.parent])
    assert str(here / "llmlesson") in model.other_folder()
    monkeypatch.setattr(model, "write_error", lambda path: None if path.parent == temporary else "denied")
    assert str(temporary / "llmlesson") in model.other_folder()


def test_whether_a_folder_can_be_written(tmp_path):
    assert write_error(tmp_path / "not" / "there" / "yet") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert write_error(tmp_path / "file" / "folder")


def test_home_is_shown_as_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert short(tmp_path / "a") == str(model.Path("~") / "a")
    assert short(tmp_path.parent) == str(tmp_path.parent)
