"""deploy/start: a learner gets the lessons, keeps what they have, and always gets a server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script for Linux")

START = Path(__file__).resolve().parents[2] / "deploy" / "start"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course with two lessons that nobody may write, as an administrator keeps it."""
    course = tmp_path / "the course"
    (course / "deploy").mkdir(parents=True)
    shutil.copy(START, course / "deploy" / "start")
    (course / "notebooks").mkdir()
    for name in ("00.ipynb", "01.ipynb"):
        (course / "notebooks" / name).write_text(f"lesson {name}")
        (course / "notebooks" / name).chmod(0o444)
    return course


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "her home"
    home.mkdir()
    return home


def start(course: Path, home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [course / "deploy" / "start", *command], env={**os.environ, "HOME": str(home)}, capture_output=True, text=True
    )


def test_lessons_are_copied_and_can_be_written(course: Path, home: Path):
    assert start(course, home, "true").returncode == 0
    copies = sorted((home / "notebooks").iterdir())
    assert [(path.name, path.read_text()) for path in copies] == [
        ("00.ipynb", "lesson 00.ipynb"),
        ("01.ipynb", "lesson 01.ipynb"),
    ]
    assert all(path.stat().st_mode & 0o200 for path in copies)


def test_what_is_there_stays_and_what_is_missing_comes_back(course: Path, home: Path):
    start(course, home, "true")
    (home / "notebooks" / "00.ipynb").write_text("my work")
    (home / "notebooks" / "01.ipynb").unlink()
    start(course, home, "true")
    assert (home / "notebooks" / "00.ipynb").read_text() == "my work"
    assert (home / "notebooks" / "01.ipynb").read_text() == "lesson 01.ipynb"


def test_a_link_of_the_learner_is_left_alone_also_where_it_leads_nowhere(course: Path, home: Path):
    (home / "notebooks").mkdir()
    (home / "notebooks" / "00.ipynb").symlink_to(home / "elsewhere.ipynb")
    start(course, home, "true")
    assert not (home / "elsewhere.ipynb").exists()
    assert (home / "notebooks" / "00.ipynb").is_symlink()


def test_the_command_runs_in_the_home_folder_with_its_arguments(course: Path, home: Path):
    done = start(course, home, "sh", "-c", 'pwd; echo "$1"; exit 7', "name", "two words")
    assert done.stdout.splitlines() == [str(home), "two words"]
    assert done.returncode == 7


def test_the_command_runs_also_where_nothing_can_be_copied(course: Path, home: Path):
    (home / "notebooks").write_text("a file where the folder should be")
    done = start(course, home, "echo", "server")
    assert done.stdout == "server\n"
    assert "could not be copied" in done.stderr
