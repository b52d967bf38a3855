"""The copies of the lessons for Google Colab, and their first cell: real pip and git, a stand-in for google.colab."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "colab.py"
LINK = re.compile(r"\]\(([^)\s]+)\)")


def convert(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, TOOL, *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, encoding="utf-8")


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colab") / "new"
    ran = convert("some-one/a.course", folder)
    assert ran.returncode == 0, ran.stderr
    return {path.name: nbformat.read(path, as_version=4) for path in folder.iterdir()}


@pytest.fixture(scope="module")
def cell(copies):
    """Runs the first cell."""
    code = compile(copies["00_start_here.ipynb"].cells[0].source, "<first cell>", "exec")
    return lambda: exec(code, {})


@pytest.fixture
def colab(monkeypatch):
    """Stands in for google.colab: the calls that its widget manager got."""
    calls: list[str] = []
    package, module = ModuleType("google"), ModuleType("google.colab")
    module.output = SimpleNamespace(enable_custom_widget_manager=lambda: calls.append("on"))
    monkeypatch.setitem(sys.modules, "google", package)
    monkeypatch.setitem(sys.modules, "google.colab", module)
    return calls


def pretend(monkeypatch, before: dict[str, str], after: dict[str, str]) -> None:
    """pip succeeds, and what is installed changes from `before` to `after`."""
    answers = [before, after]
    ran = subprocess.CompletedProcess([], 0, "")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: ran)
    monkeypatch.setattr(
        importlib.metadata,
        "distributions",
        lambda: [SimpleNamespace(name=name, version=number) for name, number in answers.pop(0).items()],
    )
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"tqdm": ["tqdm"], "absent": ["absent"]})


def test_every_lesson_gets_the_cell_and_is_otherwise_the_same(copies):
    names = {path.name for path in ROOT.glob("notebooks/*.ipynb")}
    assert set(copies) == names
    for name, copy in copies.items():
        nbformat.validate(copy)
        original = nbformat.read(ROOT / "notebooks" / name, as_version=4)
        first, *rest = copy.cells
        assert '"llmlesson @ git+https://github.com/some-one/a.course@colab"' in first.source
        assert [cell.id for cell in rest] == [cell.id for cell in original.cells]
        for new, old in zip(rest, original.cells, strict=True):
            if new.cell_type == "markdown":
                assert new == old or "](" in old.source, new.id
                continue
            assert new.outputs == []
            assert new.source.replace("# @title ", "# ", 1) == old.source


def test_a_copy_gives_no_answer_away(copies):
    """Colab heeds no `outputs_hidden` and no `source_hidden`. A form hides its code, and shows the title."""
    for copy in copies.values():
        for cell in copy.cells[1:]:
            if ".reveal(" in cell.source or "Prediction(" in cell.source:
                assert cell.metadata.cellView == "form"
                assert re.match(r"# @title .+\n", cell.source)


def test_links_lead_to_the_other_copies(copies):
    def targets(text: str) -> list[str]:
        return [target for target in LINK.findall(text) if not target.startswith("#")]

    lessons = "https://colab.research.google.com/github/some-one/a.course/blob/colab/notebooks/"
    files = "https://github.com/some-one/a.course/blob/colab/notebooks/"
    seen = set()
    for name, copy in copies.items():
        text = "\n".join(cell.source for cell in copy.cells if cell.cell_type == "markdown")
        original = nbformat.read(ROOT / "notebooks" / name, as_version=4)
        before = "\n".join(cell.source for cell in original.cells if cell.cell_type == "markdown")
        for new, old in zip(targets(text), targets(before), strict=True):
            assert new in (lessons + old, files + old) or new == old, new
            assert new.startswith("https://"), f"{name}: {new} leads nowhere in Colab"
            seen.add(new)
    assert lessons + "01_tokenization.ipynb" in seen
    assert files + "glossary.md" in seen


def test_the_tool_refuses_what_is_no_repository(tmp_path):
    assert "is not OWNER/REPOSITORY" in convert("https://github.com/some/repo", tmp_path).stderr


NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}  # such as one to sign commits


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", folder, "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments]
    environ = os.environ | NO_SETTINGS
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8", env=environ).stdout


@pytest.mark.skipif(os.name == "nt", reason="the workflow runs on Linux")
def test_the_workflow_publishes_the_copies_anew_at_each_push(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    workflow = yaml.safe_load((ROOT / ".github/workflows/colab.yml").read_text(encoding="utf-8"))
    script = workflow["jobs"]["publish"]["steps"][-1]["run"]
    origin, checkout = tmp_path / "origin", tmp_path / "checkout"
    for folder in (".github", "notebooks", "tools"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    subprocess.run(["git", "init", "-q", "--bare", origin], check=True)
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "course")
    git(checkout, "remote", "add", "origin", str(origin))
    environ = os.environ | NO_SETTINGS | {"GITHUB_REPOSITORY": "some-one/a.course"}
    for sha in ("first", "second"):  # with the same lessons
        git(checkout, "checkout", "-q", "--detach", "main")
        subprocess.run(["bash", "-e", "-c", script], cwd=checkout, env=environ | {"GITHUB_SHA": sha}, check=True)
        assert git(origin, "log", "--format=%s", "colab") == f"Lessons for Colab, from {sha}\ncourse\n"
    assert ".github" not in git(origin, "ls-tree", "--name-only", "colab").split()
    assert "a.course@colab" in git(origin, "show", "colab:notebooks/00_start_here.ipynb")

    again = subprocess.run(["bash", "-e", "-c", script], cwd=checkout, env=environ, capture_output=True, text=True)
    assert again.returncode == 2
    assert "00_start_here.ipynb: it already has the cell for Colab" in again.stderr


def test_outside_colab_the_cell_does_nothing(cell, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "google.colab", None)  # importing it fails
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("something was run"))
    cell()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("ipywidgets", "manager"), [("7.7.1", []), ("8.1.9", ["on"])])
def test_the_widget_manager_is_on_where_colab_needs_it(cell, colab, monkeypatch, ipywidgets, manager):
    there = {"torch": "2.11.0", "ipywidgets": ipywidgets}
    pretend(monkeypatch, there, there)
    cell()
    assert colab == manager


def test_what_was_loaded_before_it_was_replaced_asks_for_a_restart(cell, colab, monkeypatch):
    pretend(monkeypatch, {"tqdm": "4.60"}, {"tqdm": "4.70", "ipywidgets": "7.7.1"})
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    with pytest.raises(RuntimeError, match=r"have now been updated \(tqdm\).*Restart session"):
        cell()


# A build backend small enough to need nothing: pip builds the stand-in for the course without a network.
BACKEND = """\
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = Path(folder, "llmlesson-0.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: llmlesson\\nVersion: 0.0\\nRequires-Dist: {needs}\\n")
    return info.name

def build_wheel(*args, **kwargs):
    raise SystemExit("no wheel is needed for a dry run")
"""


@pytest.fixture
def github(tmp_path, monkeypatch):
    """`github(needs)` stands in for the course's repository; pip runs for real, but installs nothing.

    pip sees one package source, a folder that offers torch 99.
    """
    if shutil.which("git") is None:
        pytest.skip("needs git")
    offered = tmp_path / "offered"
    offered.mkdir()
    with zipfile.ZipFile(offered / "torch-99.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
        wheel.writestr("torch-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("torch-99.0.dist-info/RECORD", "")
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    settings = {"DRY_RUN": "1", "NO_INDEX": "1", "FIND_LINKS": str(offered), "CONFIG_FILE": os.devnull}
    for name, value in settings.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    hosted = tmp_path / "hosted"
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{hosted.as_uri()}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")

    def publish(needs: str) -> None:
        repository = hosted / "some-one" / "a.course"
        repository.mkdir(parents=True)
        build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        (repository / "pyproject.toml").write_text(build, encoding="utf-8")
        (repository / "backend.py").write_text(BACKEND.replace("{needs}", needs), encoding="utf-8")
        git(repository, "init", "-q", "-b", "colab")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", "course")

    return publish


def test_a_course_that_fits_colabs_torch_is_installed(cell, colab, github, capsys):
    github("torch>=2")
    cell()
    assert capsys.readouterr().out == "The course is installed.\n"


def test_a_course_that_needs_another_torch_stops_instead_of_replacing_it(cell, colab, github):
    github("torch>=99")
    with pytest.raises(RuntimeError) as raised:
        cell()
    said = str(raised.value)
    assert f"torch=={version('torch')} and numpy=={version('numpy')}, which stay as they were" in said
    assert f"(constraint) torch=={version('torch')}" in said  # pip's own words
    assert "choose the newest runtime" in said


def test_pips_reason_is_shown_when_the_repository_is_not_there(cell, colab, github):
    with pytest.raises(RuntimeError, match=r"(?s)does not exist|not appear to be a git repository"):
        cell()
