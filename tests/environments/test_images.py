"""What builds Binder's image, the classroom image and the development container, as far as it runs without Docker."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import json5
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "binder/environment.yml").read_text(encoding="utf-8"))
CONDA = dict(re.fullmatch(r"([\w-]+)(.*)", line).groups() for line in ENVIRONMENT["dependencies"])  # name: versions
CONDA_NAMES = {"torch": "pytorch-cpu"}  # where conda's name differs from pip's
SCRIPTS = ("binder/postBuild", "deploy/start")
DOCKERFILES = ("deploy/Dockerfile", ".devcontainer/Dockerfile")

posix = pytest.mark.skipif(os.name == "nt", reason="needs bash, and programs that are shell scripts")


def test_conda_brings_versions_that_the_course_accepts():
    """What pip is told to leave alone has to be right already."""
    accepted = {need.name: need.specifier for need in map(Requirement, PROJECT["dependencies"])}
    for name in ("torch", "numpy"):
        assert SpecifierSet(CONDA[CONDA_NAMES.get(name, name)]) == accepted[name], name
    # repo2docker looks for the first python=X.Y, and takes its own base environment for it.
    first = ENVIRONMENT["dependencies"][0]
    assert re.fullmatch(r"python=3\.\d+", first), first
    assert SpecifierSet(PROJECT["requires-python"]).contains(first.removeprefix("python="))
    assert all(isinstance(line, str) for line in ENVIRONMENT["dependencies"]), "pip's part is postBuild's"


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run(script):
    assert (ROOT / script).read_bytes().startswith(b"#!")
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-s", script], cwd=ROOT, capture_output=True, text=True, check=True)
        assert listed.stdout.startswith("100755"), "not executable"


@pytest.fixture
def built(tmp_path):
    """postBuild, run with stand-ins for pip and llmlesson that write down what they get. Returns the folder."""
    programs = tmp_path / "bin"
    programs.mkdir()
    python = f"""#!/bin/bash
        case "$1 $2" in
        "-m pip") shift 2; echo "pip $*" >>"{tmp_path}/calls"
            while [ $# -gt 0 ]; do
                case $1 in --constraint | --requirement) cp "$2" "{tmp_path}/${{1#--}}" ;; esac; shift
            done ;;
        "-c import sys; print(sys.prefix)") echo "{tmp_path}/prefix" ;;
        "- "*) exec "{sys.executable}" "$@" ;;
        *) echo "unexpected: $*" >&2; exit 1 ;;
        esac
    """
    llmlesson = f"""#!/bin/bash
        echo "llmlesson $*" >>"{tmp_path}/calls"
    """
    for name, text in (("python", python), ("llmlesson", llmlesson)):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run([ROOT / "binder/postBuild"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return tmp_path


@posix
def test_post_build_keeps_what_conda_brought(built):
    kept = {need.name: need for need in map(Requirement, (built / "constraint").read_text().split())}
    assert set(kept) == {"torch", "numpy", "jupyterlab"}
    for name, need in kept.items():
        assert need.specifier == SpecifierSet(f"=={version(name)}"), name
        assert CONDA_NAMES.get(name, name) in CONDA
    everything = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    asked = (built / "requirement").read_text().splitlines()
    assert asked == [line for line in everything if line.partition("==")[0] not in kept]
    assert len(everything) - len(asked) == len(kept)
    assert "-e ." in asked


@posix
def test_post_build_fetches_the_model_and_writes_jupyters_settings(built):
    install, balancer, fetch = (built / "calls").read_text().splitlines()
    assert install.startswith("pip install --no-cache-dir --constraint ")
    assert balancer == "pip install --no-cache-dir -r requirements-balancer.txt"
    assert fetch == "llmlesson fetch"
    for file in ("jupyter_server_config.py", "labconfig/page_config.json"):
        assert (built / "prefix/etc/jupyter" / file).read_bytes() == (ROOT / "deploy/jupyter" / file).read_bytes()


def dockerfile(name: str) -> list[list[str]]:
    """Its instructions, each split at white space; continued lines are one."""
    text = (ROOT / name).read_text(encoding="utf-8")
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [line.split() for line in joined.splitlines() if line.strip()]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_are_built_from_the_one_environment_and_do_not_run_as_root(name):
    steps = dockerfile(name)
    assert ["COPY", "binder/environment.yml", "/tmp/environment.yml"] in steps
    assert [step[1] for step in steps if step[0] == "USER"][-1] not in ("root", "0")
    run = " ".join(word for step in steps if step[0] == "RUN" for word in step)
    assert "micromamba create --yes --prefix" in run
    for source in (step[1] for step in steps if step[0] == "COPY"):
        assert (ROOT / source).exists()


def test_the_cuda_image_replaces_the_cpu_build():
    steps = dockerfile("deploy/Dockerfile")
    default = next(step[1].removeprefix("TORCH=") for step in steps if step[0] == "ARG" and "TORCH" in step[1])
    assert default in CONDA
    replaced = next(step for step in steps if step[0] == "RUN" and "sed" in step)
    assert f'"s/{default}/$TORCH/"' in replaced


def test_the_build_context_holds_what_is_built():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines, "everything is left out but for what is named"
    sent = [ROOT / line[1:] for line in lines if line.startswith("!")]
    assert all(path.exists() for path in sent)
    entry = next(step[-1] for step in dockerfile("deploy/Dockerfile") if step[0] == "ENTRYPOINT")
    needed = [
        entry.strip('"]').removeprefix("/srv/llmlesson/"),
        *(
            "binder/environment.yml",
            "binder/postBuild",
            "deploy/jupyter",
            "requirements.txt",
            "requirements-balancer.txt",
            "pyproject.toml",
        ),
        *("llmlesson/limits.py", "notebooks/glossary.md", PROJECT["readme"], *PROJECT["license-files"]),
    ]
    for path in needed:
        assert any((ROOT / path).is_relative_to(part) for part in sent), path
        assert (ROOT / path).exists()


def test_the_development_container_is_defined():
    text = (ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    container = json5.loads(text)
    build = {name: ROOT / ".devcontainer" / path for name, path in container["build"].items()}
    assert build["dockerfile"].is_file()
    assert build["context"].resolve() == ROOT
    steps = dockerfile(".devcontainer/Dockerfile")
    assert container["remoteUser"] == [step[1] for step in steps if step[0] == "USER"][-1]
    assert "chromium" in next(step for step in steps if "apt-get" in step), "the browser tests need it"
    command = container["postCreateCommand"]
    assert command.startswith("binder/postBuild && ")
    development = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    assert "-r requirements.txt" in development
    if os.name != "nt":
        left = command.partition("&& ")[2].partition(" |")[0]
        ran = subprocess.run(["bash", "-c", left], cwd=ROOT, capture_output=True, text=True, check=True)
        assert ran.stdout == development.replace("-r requirements.txt\n", "")
