"""Hand-ins are graded in a sandbox: what a learner's code can reach there, and whose score is taken."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmlesson import LessonError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "grade.py"
spec = importlib.util.spec_from_file_location("grade", TOOL)
grade = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grade)

TRY = """
import json, os, pathlib, socket, subprocess, sys

def attempt(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"

subprocess.Popen(["sleep", "1000"], start_new_session=True)
found = attempt(pathlib.Path(sys.argv[1]).read_text)
pathlib.Path(sys.argv[1]).write_text("overwritten")  # in a folder that is gone afterwards
server = socket.create_server(("127.0.0.1", 0))
print(json.dumps({
    "read another hand-in": found,
    "write the package": attempt(pathlib.Path(sys.argv[2], "new.py").touch),
    "write its own copy": attempt(pathlib.Path("mine").touch),
    "reach the network": attempt(socket.create_connection, ("192.0.2.1", 80), 5),
    "reach its own kernel": attempt(socket.create_connection, server.getsockname(), 5),
    "secret": os.environ.get("SECRET"),
    "model": pathlib.Path(os.environ["LLMLESSON_HOME"], "models/smollm2-135m/config.json").exists(),
}))
"""


@pytest.fixture
def box(tmp_path):
    folder = tmp_path / "box"
    folder.mkdir()
    if not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap (apt install bubblewrap)")
    tried = subprocess.run(grade.sandbox(["true"], folder), capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"cannot make a sandbox here: {tried.stderr.strip()}")
    return folder


def test_code_in_the_sandbox_reaches_nothing_but_its_own_hand_in(box, tmp_path, monkeypatch):
    other = tmp_path / "other.ipynb"
    other.write_text("somebody's work", encoding="utf-8")
    monkeypatch.setenv("SECRET", "of the instructor")
    package = str(Path(grade.llmlesson.__file__).parent)
    command = grade.sandbox([sys.executable, "-c", TRY, str(other), package], box)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "read another hand-in": "FileNotFoundError",
        "write the package": "OSError",
        "write its own copy": "done",
        "reach the network": "OSError",
        "reach its own kernel": "done",
        "secret": None,
        "model": True,
    }
    # That `sleep` ended with the sandbox: otherwise the test run would report it as left running.
    assert (box / "mine").exists()
    assert other.read_text(encoding="utf-8") == "somebody's work"
    assert not Path(package, "new.py").exists()


def test_a_hand_in_cannot_give_others_a_score(tmp_path):
    exported = tmp_path / "grades.csv"
    header = "assignment,student_id,score,max_score\n"
    exported.write_text(f"{header}03_decode,ada,0.0,3.0\n03_decode,grace,3.0,3.0\n", encoding="utf-8")
    assert grade.score(exported, "ada", "03_decode") == ("0.0", "3.0")
    exported.write_text(f"{header}03_decode,grace,3.0,3.0\n", encoding="utf-8")
    with pytest.raises(LessonError, match="ada: nbgrader exported 0 scores"):
        grade.score(exported, "ada", "03_decode")


def test_what_is_missing_is_said_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(grade.shutil, "which", lambda program: None)
    assert grade.main([str(tmp_path), "03_decode"]) == 1
    assert "There is no program bwrap" in capsys.readouterr().err
    monkeypatch.setattr(grade.shutil, "which", lambda program: program)
    assert grade.main([str(tmp_path), "03_decode"]) == 1
    assert "No hand-ins for 03_decode" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
