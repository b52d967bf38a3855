"""Learners' accounts on The Littlest JupyterHub: no name is left whose password a stranger could choose."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

firstuse = pytest.importorskip("firstuseauthenticator")  # the default authenticator of that hub

LEARNERS = Path(__file__).resolve().parents[2] / "deploy" / "tljh" / "learners.py"


@pytest.fixture
def tljh(tmp_path):
    """A folder like /opt/tljh, with a stand-in for tljh-config that writes down how it is called."""
    (tmp_path / "state").mkdir()
    (tmp_path / "hub" / "bin").mkdir(parents=True)
    program = tmp_path / "hub" / "bin" / "tljh-config"
    program.write_text(f'#!/bin/sh\necho "$*" >>"{tmp_path}/calls"\necho "a word of its own"\n', encoding="utf-8")
    program.chmod(0o755)
    return tmp_path


def add(tljh, *names):
    env = os.environ | {"TLJH_INSTALL_PREFIX": str(tljh)}
    return subprocess.run([sys.executable, LEARNERS, *names], env=env, capture_output=True, text=True)


def can_log_in(tljh, name, password):
    hub = firstuse.FirstUseAuthenticator(dbm_path=str(tljh / "state" / "passwords.dbm"))
    return asyncio.run(hub.authenticate(SimpleNamespace(), {"username": name, "password": password})) == name


def test_only_the_printed_password_opens_an_account(tljh):
    result = add(tljh, "ada", "grace")
    passwords = dict(line.split("\t") for line in result.stdout.splitlines())
    assert result.returncode == 0, result.stderr
    assert list(passwords) == ["ada", "grace"]
    assert passwords["ada"] != passwords["grace"]
    for name, password in passwords.items():
        assert not can_log_in(tljh, name, "whoever comes first")
        assert can_log_in(tljh, name, password)
    assert can_log_in(tljh, "alan", "whoever comes first"), "without this, the first to come chooses the password"
    calls = (tljh / "calls").read_text(encoding="utf-8").splitlines()
    assert calls == ["add-item users.allowed ada", "add-item users.allowed grace", "reload hub"]
    assert not any(path.stat().st_mode & 0o077 for path in (tljh / "state").iterdir())


def test_an_account_keeps_its_password(tljh):
    _, password = add(tljh, "ada").stdout.split()
    assert "already has a password" in add(tljh, "ada", "grace").stdout
    assert can_log_in(tljh, "ada", password)


@pytest.mark.parametrize("name", ["Ada", "ada lovelace", "42", "../ada", ""])
def test_a_name_that_the_hub_would_change_or_refuse_changes_nothing(tljh, name):
    assert add(tljh, "grace", name).returncode == 2
    assert not (tljh / "calls").exists()
    assert not list((tljh / "state").iterdir())
