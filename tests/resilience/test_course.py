"""Every lesson in a real kernel without a network, with one CPU, 2 GB of memory and a read-only home.

This run also compares outputs with the stored ones, as nbval does. So where it is possible, a test run that includes it
leaves out nbval's own run of the lessons (conftest.py in this folder).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from llmlesson.files.fetch import default_model_folder, ensure_default_model
from resilience.hard import HERE, Hard, clean_environment, hard_conditions

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
MEMORY = 2_000_000_000

LOOK_AROUND = """
import json, os, pathlib, socket

def writes(folder):
    try:
        pathlib.Path(folder, "new").touch()
    except OSError as error:
        return error.strerror
    return "written"

with socket.create_server(("127.0.0.1", 0)) as server:
    loopback = socket.create_connection(server.getsockname(), timeout=5).getpeername()[0]
print(json.dumps({
    "loopback": loopback,
    "routes": pathlib.Path("/proc/net/route").read_text().splitlines()[1:],
    "cpus": len(os.sched_getaffinity(0)),
    "home": writes(os.environ["HOME"]),
    "cache": writes(os.environ["LLMLESSON_HOME"]),
    "elsewhere": writes("."),
}))
"""


@pytest.fixture
def hard() -> Iterator[Hard]:
    with hard_conditions(MEMORY) as conditions:
        if conditions.missing["namespaces"]:
            pytest.skip(conditions.missing["namespaces"])
        yield conditions


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def run_inside(hard: Hard, home: Path, tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run `python ARGS` under all conditions, in the folder `tmp_path`, and return the JSON that it prints last.

    The variables are those that the README names for a home that can't be written. All else must do without.
    """
    ensure_default_model()
    cache = default_model_folder().parents[1]

    def run(*args: str, llmlesson_home: Path | None = cache) -> dict[str, object]:
        variables = {"JUPYTER_DATA_DIR": str(tmp_path / "data"), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
        if llmlesson_home:
            variables["LLMLESSON_HOME"] = str(llmlesson_home)
        command = hard.command([home, cache], sys.executable, *args)
        result = subprocess.run(
            command, env=clean_environment(home, **variables), cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        assert result.returncode == 0, f"{args} ended with {result.returncode}:\n{result.stderr[-3000:]}"
        report: dict[str, object] = json.loads(result.stdout.splitlines()[-1])
        return report

    return run


def test_the_conditions_are_real(run_inside: Callable[..., dict[str, object]]) -> None:
    assert run_inside("-c", LOOK_AROUND) == {
        "loopback": "127.0.0.1",
        "routes": [],
        "cpus": 1,
        "home": "Read-only file system",
        "cache": "Read-only file system",
        "elsewhere": "written",
    }


@pytest.mark.parametrize(
    ("source", "failed"),
    [
        ("1 / 0", "cell 2: ZeroDivisionError: division by zero"),
        ("b'x' * 3_000_000_000", "cell 2: the kernel was killed, because there was too little memory"),
        ("print('a')\nprint('c')\n'kept'", r"cell 2: stdout is ['a\nc\n'], stored is ['a\nb\n']"),
        ("print('a')\nprint('b')\n'other'", "cell 2: text/plain is [\"'other'\"], stored is [\"'kept'\"]"),
        ("print('a')\nprint('b')", "cell 2: text/plain is None, stored is [\"'kept'\"]"),
        ("print('a')\nprint('b', flush=True)\n'kept'", ""),
    ],
)
def test_a_cell_that_fails_or_says_something_else_is_named_with_its_reason(
    source: str, failed: str, hard: Hard, run_inside: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    if "memory" in failed and hard.missing["memory"]:
        pytest.skip(hard.missing["memory"])
    stored = [new_output("stream", text="a\nb\n"), new_output("execute_result", {"text/plain": "'kept'"})]
    tested = new_code_cell(source, metadata={"tags": ["nbval-check-output"]}, outputs=stored)
    unchecked = new_code_cell("'fine'", outputs=[new_output("execute_result", {"text/plain": "'from before'"})])
    cells = [new_markdown_cell("# A notebook"), unchecked, tested, new_code_cell("'more'")]
    nbformat.write(new_notebook(cells=cells), tmp_path / "failing.ipynb")
    assert run_inside(str(HERE / "run_lesson.py"), "failing.ipynb")["failed"] == failed


@pytest.mark.parametrize("name", LESSONS)
def test_lesson_under_hard_conditions(name: str, run_inside: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    shutil.copy(NOTEBOOKS / name, tmp_path)
    report = run_inside(str(HERE / "run_lesson.py"), name)
    print(name, report)
    assert report["failed"] == "", f"{name}, {report['failed']}"
    assert report["peak_bytes"] < MEMORY  # also where no limit could be set


def test_jupyterlab_opens_runs_and_saves_a_lesson(run_inside: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    shutil.copy(NOTEBOOKS / LESSONS[0], tmp_path)
    assert run_inside(str(HERE / "run_lab.py"), LESSONS[0]) == {
        "open": 200,
        "save": 200,
        "kernel": 201,
        "settings": 204,
        "layout": 204,
    }


@pytest.mark.parametrize("filled", [False, True], ids=["no model", "a model"])
def test_the_first_cells_in_a_home_that_cannot_be_written(
    filled: bool, run_inside: Callable[..., dict[str, object]], home: Path, tmp_path: Path
) -> None:
    """With the model in the user's own cache folder, or with none; LLMLESSON_HOME is not set."""
    notebook = nbformat.read(NOTEBOOKS / LESSONS[0], as_version=4)
    load = next(i for i, cell in enumerate(notebook.cells) if "llmlesson.load(" in cell.source)
    notebook.cells = notebook.cells[: load + 1]
    nbformat.write(notebook, tmp_path / "first.ipynb")
    if filled:
        (home / ".cache").mkdir()
        (home / ".cache" / "llmlesson").symlink_to(default_model_folder().parents[1])
    failed = run_inside(str(HERE / "run_lesson.py"), "first.ipynb", llmlesson_home=None)["failed"]
    models = home / ".cache" / "llmlesson" / "models"
    told = (
        f"cell {load}: LessonError: Can't write the model to {models} (Read-only file system). "
        "Make that folder writable, or set the environment variable LLMLESSON_HOME to one that is."
    )
    assert failed == ("" if filled else told)
