"""The report as a whole: the real command, its forms, its exit status; and that nothing stops it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import llmlesson.doctor
from llmlesson import cli
from llmlesson.commands.doctor import has_colour
from llmlesson.doctor import checks, gpu, model, processor
from llmlesson.doctor.finding import ok, problem, warning
from llmlesson.doctor.report import to_text

FINE = ok("memory", "enough")
WARNED = warning("kernel", "odd", "mend it")
FAILED = problem("model", "damaged", "llmlesson fetch\n(once)")

# Of every Python that the command starts: writes down who asks the network for anything, and refuses. Its own address
# is not the network.
GUARD = """
import os, socket

def refuse(*args, **kwargs):
    with open({log!r}, "a") as file:
        print(args, file=file)
    raise OSError("the network is off")

real = socket.socket.connect

def connect(self, address):
    return real(self, address) if address[0] == "127.0.0.1" else refuse(address)

socket.getaddrinfo, socket.socket.connect = refuse, connect
"""


@pytest.fixture
def doctor(tmp_path):
    """doctor(*options): the finished command, and whether it asked the network for anything."""
    log = tmp_path / "log"
    (tmp_path / "sitecustomize.py").write_text(GUARD.format(log=str(log)))
    env = os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "100"}
    env.pop("HF_HUB_OFFLINE", None)

    def run(*options):
        command = [sys.executable, "-m", "llmlesson.cli", "doctor", *options]
        result = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=120)
        return result, log.exists()

    return run


def test_here_nothing_is_wrong_the_network_is_left_alone_and_it_fits_a_screen(doctor):
    result, asked = doctor()
    assert "problem" not in result.stdout
    assert result.returncode == 0
    assert result.stderr == ""
    assert not asked
    lines = result.stdout.splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines if "->" not in line) <= 100
    assert "\033" not in result.stdout


def test_online_asks_and_json_is_records_alone(doctor):
    result, asked = doctor("--online", "--json")
    assert asked
    records = json.loads(result.stdout)
    assert all(record.keys() == {"status", "name", "what", "mend"} for record in records)
    names = [record["name"] for record in records]
    assert names[-2:] == ["package index", "model hub"]
    assert set(checks.CHECKS) <= set(names)
    for record in records:
        assert bool(record["mend"]) == (record["status"] != "ok")
        assert "check itself failed" not in record["what"]
    # The model is here, so that a network is missed by nobody.
    assert result.returncode == 0
    assert [record["status"] for record in records[-2:]] == ["warning", "warning"]


@pytest.mark.parametrize(
    ("findings", "status", "last"),
    [
        ([FINE], 0, "All is well."),
        ([FINE, WARNED], 0, "1 warning: the lines with -> say how to fix it."),
        ([FAILED, FINE, WARNED, FAILED], 1, "2 problems and 1 warning: the lines with -> say how to fix it."),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"], ["--online"]])
def test_exit_status(monkeypatch, capsys, findings, status, last, options):
    monkeypatch.setattr(llmlesson.doctor, "examine", lambda online: findings)
    assert cli.main(["doctor", *options]) == status
    output = capsys.readouterr().out
    if "--json" in options:
        assert [record["what"] for record in json.loads(output)] == [finding.what for finding in findings]
    else:
        assert output.splitlines()[-1] == last


def test_lines_are_wrapped_and_commands_are_not():
    command = "python -m pip install " + " ".join(f'"package{n}>=1"' for n in range(12))
    long = problem("packages", "word " * 60, f"{command}\n(then again)")
    lines = to_text([FINE, long], width=60).splitlines()
    assert lines[0] == "ok       memory        enough"
    assert lines[1].startswith("problem  packages      word word")
    end = next(number for number, line in enumerate(lines) if "->" in line)
    assert all(len(line) <= 60 for line in lines[:end])
    assert all(line.startswith(" " * 23) for line in lines[2:end])
    path = "/a-long/" * 12
    assert path in to_text([problem("model", f"damaged in {path}", "")], width=60)
    assert lines[end] == " " * 23 + "-> " + command
    assert lines[end + 1] == " " * 26 + "(then again)"


def test_colour_is_only_in_the_status():
    plain, coloured = (to_text([FINE, FAILED], 80, colour=colour) for colour in (False, True))
    assert "\033[32mok       \033[0mmemory" in coloured
    assert "\033" not in plain


@pytest.mark.parametrize(
    ("terminal", "variables", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb", "WT_SESSION": None}, False),
    ],
)
def test_when_there_is_colour(monkeypatch, terminal, variables, expected):
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: terminal))
    for name, value in ({"NO_COLOR": None, "TERM": "xterm", "WT_SESSION": "1"} | variables).items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert has_colour() == expected


@pytest.fixture
def quick_checks(monkeypatch):
    """Those that take time are left out."""
    facts = {"version": "2", "cuda": None, "gpus": [], "architectures": [], "warnings": []}
    monkeypatch.setattr(gpu, "probe_apart", lambda: facts)
    monkeypatch.setattr(gpu, "find_driver", lambda: None)
    monkeypatch.setattr(model.fetch, "sha256_of", lambda path: "0")


def test_a_check_that_fails_is_a_line_and_the_others_go_on(monkeypatch, quick_checks):
    def fails():
        raise KeyError("odd")

    monkeypatch.setattr(processor, "memory", fails)
    findings = {finding.name: finding for finding in llmlesson.doctor.examine()}
    assert findings["memory"].status == "problem"
    assert findings["memory"].what == "the check itself failed: KeyError: 'odd'"
    assert findings.keys() >= set(checks.CHECKS)
    assert sum("itself failed" in finding.what for finding in findings.values()) == 1


def test_a_package_missing_for_a_check_is_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    [finding] = checks.attempt("memory", "processor.memory")
    assert finding.status == "problem"
    assert "psutil" in finding.what
    assert "pip install -r requirements.txt" in finding.mend


def test_the_short_form_of_lesson_00(monkeypatch, capsys):
    monkeypatch.setattr(model.fetch, "sha256_of", lambda path: pytest.fail("reads no weights"))
    monkeypatch.setattr(gpu, "probe_apart", lambda: pytest.fail("starts no process"))
    llmlesson.doctor.check_setup()
    output = capsys.readouterr().out
    assert "itself failed" not in output
    assert len(output.splitlines()) <= 12
    assert "cache folder" not in output
    for name in ("Python", "packages", "PyTorch", "GPU", "model", "memory", "processor"):
        assert re.search(rf"^(ok|warning) +{name} ", output, re.MULTILINE)


def test_the_short_form_says_what_is_wrong_and_raises_nothing(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMLESSON_HOME", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(processor, "processor", lambda: 1 / 0)
    llmlesson.doctor.check_setup()
    output = capsys.readouterr().out
    assert "problem  cache folder" in output
    assert "LLMLESSON_HOME" in output
    assert "ZeroDivisionError" in output
    assert output.splitlines()[-2].startswith("2 problems:")
    assert "a terminal" in output.splitlines()[-1]
