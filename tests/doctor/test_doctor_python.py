"""Python and packages, against metadata of packages made for the test."""

from __future__ import annotations

import platform

import pytest

from llmlesson.doctor import commands, python


@pytest.fixture(autouse=True)
def no_front_end(monkeypatch):
    monkeypatch.setattr(python, "FRONT_ENDS", ())


def test_supported_python(distribution):
    distribution("llmlesson", "9", python=">=3.11")
    assert python.version().status == "ok"
    assert platform.python_version() in python.version().what


def test_unsupported_python(distribution):
    distribution("llmlesson", "9", python=">=3.99")
    finding = python.version()
    assert finding.status == "problem"
    assert "needs >=3.99" in finding.what
    assert "Python >=3.99" in finding.mend


def test_all_packages_fit(distribution):
    distribution("llmlesson", "9", ["alpha>=1,<3", "beta", "gamma>=9; python_version < '3'", "delta; extra == 'x'"])
    distribution("alpha", "2.5+cpu", ["Beta_>=0", "beta~=4.1"][1:])
    distribution("beta", "4.2.dev1")
    [finding] = python.packages()
    assert finding.status == "ok"
    assert "all 2 that llmlesson 9 needs" in finding.what


def test_own_requirements_that_are_not_met_are_a_problem(distribution):
    distribution("llmlesson", "9", ["alpha>=2", "absent>=1.5"])
    distribution("alpha", "1.9")
    [finding] = python.packages()
    assert finding.status == "problem"
    assert "alpha is 1.9, but >=2 is needed" in finding.what
    assert "absent is missing" in finding.what
    assert finding.mend.endswith('pip install "alpha>=2" "absent>=1.5"')


def test_requirements_of_others_are_a_warning(distribution):
    distribution("llmlesson", "9", ["alpha"])
    distribution("alpha", "1", ["beta"])
    distribution("beta", "1", ["gamma<2,>=1.31"])
    distribution("gamma", "1.2")
    [finding] = python.packages()
    assert finding.status == "warning"
    assert "gamma is 1.2" in finding.what
    assert "by beta" in finding.what
    assert "gamma" in finding.mend


def test_the_front_end_is_looked_at_where_it_is_installed(distribution, monkeypatch):
    monkeypatch.setattr(python, "FRONT_ENDS", ("front", "absent"))
    distribution("llmlesson", "9")
    distribution("front", "1", ["absent>=3"])
    assert [finding.status for finding in python.packages()] == ["warning"]


def test_the_package_itself_is_not_installed(monkeypatch):
    monkeypatch.setattr(python, "COURSE", "no-such-package")
    assert python.version().status == "ok"
    [finding] = python.packages()
    assert finding.status == "problem"
    assert "requirements.txt" in finding.mend


def test_broken_metadata_is_a_missing_package(distribution, tmp_path):
    distribution("llmlesson", "9", ["alpha"])
    (tmp_path / "site-packages" / "alpha-1.dist-info").mkdir()
    [finding] = python.packages()
    assert finding.status == "problem"


@pytest.mark.parametrize(
    ("has_pip", "has_uv", "expected"),
    [
        (True, True, ' -m pip install a "b>=2"'),
        (False, True, "uv pip install --python "),
        (False, False, "-m ensurepip, then: "),
    ],
)
def test_how_packages_are_installed(monkeypatch, has_pip, has_uv, expected):
    monkeypatch.setattr(commands, "find_spec", lambda name: has_pip or None)
    monkeypatch.setattr(commands.shutil, "which", lambda name: "/bin/uv" if name == "uv" and has_uv else None)
    assert expected in commands.pip_install("a", "b>=2")


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_commands_as_the_system_writes_them(monkeypatch, system):
    monkeypatch.setattr(commands.sys, "platform", system)
    monkeypatch.setattr(commands.sys, "executable", "/with space/python3")
    windows = system == "win32"
    assert commands.set_variable("A", "/x y") == ('$env:A = "/x y"' if windows else "export A='/x y'")
    assert commands.unset_variable("A") == ("Remove-Item Env:A" if windows else "unset A")
    assert commands.python() == ('& "/with space/python3"' if windows else "'/with space/python3'")
    assert commands.quoted("/models(1)") == ('"/models(1)"' if windows else "'/models(1)'")
    assert commands.quoted("/plain-1.0/x_y") == "/plain-1.0/x_y"
