"""JupyterLab's files, made up in folders that Jupyter really looks into."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from llmlesson.doctor import jupyter


@pytest.fixture
def versions(monkeypatch):
    """versions(name="1.2", ...): what is installed, beside JupyterLab 4 and what belongs to it; None takes one away."""
    found = {"jupyterlab": "4.6.6", "ipykernel": "7.4.0", "nbformat": "5.11.1", "plotly": "7.1.0"}
    found |= {"ipywidgets": "8.1.9", "jupyterlab_widgets": "3.0.17", "widgetsnbextension": "4.0.16"}
    monkeypatch.setattr(jupyter, "installed", found.get)
    return lambda **changes: found.update(changes)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """program(folder): jupyter-lab is found in that folder, or nowhere."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    found = []
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: found[0] if name.startswith("jupyter-") else real(name))

    def set_up(folder):
        found[:] = [os.path.join(folder, "jupyter-lab") if folder else None]

    set_up(os.path.dirname(sys.executable))
    return set_up


def test_lab_of_this_environment(versions, program):
    assert jupyter.lab().status == "ok"
    assert "4.6.6" in jupyter.lab().what


def test_notebook_7_will_do(versions, program):
    versions(jupyterlab=None, notebook="7.6.5")
    assert jupyter.lab().what.startswith("Notebook 7.6.5")


def test_no_lab(versions, program):
    versions(jupyterlab=None)
    finding = jupyter.lab()
    assert finding.status == "warning"
    assert finding.mend.endswith("pip install jupyterlab ipykernel")


def test_old_lab(versions, program):
    versions(jupyterlab="3.6.8")
    finding = jupyter.lab()
    assert finding.status == "warning"
    assert '"jupyterlab>=4"' in finding.mend


@pytest.mark.parametrize(("folder", "words"), [(None, "not on PATH"), ("elsewhere", "belongs to another Python")])
def test_lab_that_does_not_start_from_here(versions, program, tmp_path, folder, words):
    program(folder and str(tmp_path / folder))
    finding = jupyter.lab()
    assert finding.status == "warning"
    assert words in finding.what
    assert finding.mend.endswith("-m jupyterlab notebooks/00_start_here.ipynb")


@pytest.mark.parametrize("variable", ["JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"])
def test_lab_that_cannot_write_its_files(versions, program, tmp_path, monkeypatch, variable):
    monkeypatch.delenv("JUPYTER_RUNTIME_DIR")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(variable, str(tmp_path / "file" / "folder"))
    finding = jupyter.lab()
    assert finding.status == "problem"
    assert variable in finding.mend


@pytest.fixture
def kernelspec(tmp_path, monkeypatch):
    """kernelspec(program): the first python3 that Jupyter finds starts this program."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setattr(jupyter, "installed", lambda name: "1")

    def set_up(program):
        folder = tmp_path / "kernels" / "python3"
        folder.mkdir(parents=True)
        spec = {"argv": [program, "-m", "ipykernel_launcher"], "display_name": "Python 3", "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec))

    return set_up


@pytest.mark.parametrize("program", ["python", "python3", sys.executable])
def test_kernel_of_this_environment(kernelspec, program):
    kernelspec(program)
    assert jupyter.kernel().status == "ok"


def test_kernel_of_another_python(kernelspec, tmp_path):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho /another/prefix\n")
    other.chmod(0o755)
    kernelspec(str(other))
    finding = jupyter.kernel()
    assert finding.status == "problem"
    if sys.platform != "win32":  # there a shell script does not run
        assert "a different Python" in finding.what
    assert finding.mend.endswith("-m jupyter kernelspec remove python3")


def test_kernel_that_is_gone(kernelspec, tmp_path):
    kernelspec(str(tmp_path / "gone" / "python"))
    finding = jupyter.kernel()
    assert finding.status == "problem"
    assert "can't be run" in finding.what


def test_kernel_of_another_python_in_this_environment(kernelspec, tmp_path, monkeypatch):
    kernelspec(str(tmp_path / "gone" / "python"))
    monkeypatch.setattr(jupyter.sys, "prefix", str(tmp_path))
    assert jupyter.kernel().mend.endswith("-m ipykernel install --sys-prefix")


@pytest.mark.parametrize(("lab", "status"), [("4.6.6", "problem"), (None, "warning")])
def test_no_kernel_here(versions, lab, status):
    versions(jupyterlab=lab, ipykernel=None)
    finding = jupyter.kernel()
    assert finding.status == status
    assert finding.mend.endswith("pip install ipykernel")


@pytest.fixture
def lab_folders(tmp_path, monkeypatch, versions):
    """The two folders that JupyterLab looks into, first the user's, then this environment's, which is complete."""
    user, environment = tmp_path / "user", tmp_path / "environment"
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: [str(user), str(environment)])
    monkeypatch.setattr("jupyter_core.paths.jupyter_config_path", lambda: [str(user), str(environment)])
    monkeypatch.setattr(jupyter.sys, "prefix", str(environment))
    monkeypatch.delenv("JUPYTERLAB_DIR", raising=False)
    add(environment, jupyter.WIDGETS, "5.0.16")
    add(environment, jupyter.PLOTS, "7.1.0")
    return user, environment


def add(folder, extension, version):
    path = folder / extension / "package.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"name": extension, "version": version}))


CHECKS = {"widgets": (jupyter.widgets, jupyter.WIDGETS), "plots": (jupyter.plots, jupyter.PLOTS)}
both = pytest.mark.parametrize(("check", "extension"), CHECKS.values(), ids=CHECKS)


@both
def test_extension_found_and_enabled(lab_folders, check, extension):
    assert check().status == "ok"
    assert "enabled in JupyterLab" in check().what


@both
def test_extension_missing(lab_folders, check, extension):
    shutil.rmtree(lab_folders[1])
    finding = check()
    assert finding.status == "problem"
    assert f"can't find {extension}" in finding.what
    assert "pip install --force-reinstall --no-deps" in finding.mend


@both
@pytest.mark.parametrize("form", ["dict", "list", "plugin"])
def test_extension_disabled(lab_folders, check, extension, form):
    names = {"dict": {extension: True}, "list": [extension], "plugin": {f"{extension}:plugin": True}}
    write_page_config(lab_folders[1], names[form])
    finding = check()
    assert finding.status == "problem"
    assert finding.mend.endswith(f"labextension enable {extension}")


@both
def test_the_users_folder_has_the_last_word(lab_folders, check, extension):
    write_page_config(lab_folders[1], {extension: True})
    write_page_config(lab_folders[0], {extension: False})
    assert check().status == "ok"


def write_page_config(folder, disabled):
    file = folder / "labconfig" / "page_config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"disabledExtensions": disabled}))


@both
@pytest.mark.parametrize(("version", "status"), [("3.1.1", "warning"), (None, "ok")])
def test_an_older_copy_hides_that_of_the_environment(lab_folders, check, extension, version, status):
    user, environment = lab_folders
    own = json.loads((environment / extension / "package.json").read_text())["version"]
    add(user, extension, version or own)
    finding = check()
    assert finding.status == status
    if version:
        assert str(user / extension) in finding.mend


@both
def test_damaged_files_of_jupyterlab_are_as_good_as_none(lab_folders, check, extension):
    write_page_config(lab_folders[1], {})
    (lab_folders[1] / "labconfig" / "page_config.json").write_text("{")
    assert check().status == "ok"
    (lab_folders[1] / extension / "package.json").write_text("[")
    assert check().status == "problem"


@both
def test_without_jupyterlab_the_extension_is_elsewhere(lab_folders, versions, check, extension):
    shutil.rmtree(lab_folders[1])
    versions(jupyterlab=None)
    assert check().status == "ok"


@pytest.mark.parametrize(
    ("changes", "words", "mend"),
    [
        ({"ipywidgets": None}, "ipywidgets is missing", "install ipywidgets"),
        ({"ipywidgets": "7.7.1"}, "JupyterLab 4 needs 8", '"ipywidgets>=8"'),
        ({"jupyterlab_widgets": "1.1.11"}, "but 1.1.11 is installed", "jupyterlab_widgets"),
        ({"widgetsnbextension": None}, "but none is installed", "widgetsnbextension"),
    ],
)
def test_widget_versions_that_do_not_match(lab_folders, versions, changes, words, mend):
    versions(**changes)
    finding = jupyter.widgets()
    assert finding.status == "problem"
    assert words in finding.what
    assert mend in finding.mend


@pytest.mark.parametrize("missing", ["plotly", "nbformat"])
def test_plots_need(lab_folders, versions, missing):
    versions(**{missing: None})
    finding = jupyter.plots()
    assert (finding.status, finding.mend.split()[-1]) == ("problem", missing)


def test_plotly_that_cannot_make_a_figure(lab_folders, monkeypatch):
    monkeypatch.setattr("plotly.graph_objects.Figure", lambda *_: 1 / 0)
    finding = jupyter.plots()
    assert finding.status == "problem"
    assert "ZeroDivisionError" in finding.what


def test_the_same_extensions_as_jupyterlab_itself_finds():
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_federated_extensions

    found = get_federated_extensions(jupyter_path("labextensions"))
    for name in (jupyter.WIDGETS, jupyter.PLOTS):
        first = next(folder for folder in jupyter.folders_of(name) if folder.is_dir())
        assert Path(found[name]["ext_path"]) == first
