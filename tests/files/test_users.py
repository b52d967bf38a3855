"""One cache folder, several users and processes at once."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import Tiny
from waiting import wait_until

from llmlesson.files.fetch import damaged_files, ensure_default_model

ALICE, BOB, LEARNERS = 61001, 61002, 61100
READS_ALL = "+dac_read_search"  # the interpreter may lie where only root looks; what is written stays forbidden


@pytest.fixture
def shared(tiny: Tiny) -> Tiny:
    """A cache folder that Alice owns, and files that both users can write, for the fake pip's notes."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs Linux and root, to be two other users")
    if not shutil.which("setpriv") or subprocess.run(as_user(ALICE, "true"), capture_output=True).returncode != 0:
        pytest.skip("setpriv cannot be another user here")
    tiny.home.mkdir()
    os.chown(tiny.home, ALICE, LEARNERS)
    tiny.runs.touch()
    tiny.runs.chmod(0o666)
    return tiny


def as_user(user: int, *command: str, umask: str = "022") -> list[str]:
    """`command` by a user whose group is their own, and who is one of the learners as well."""
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={LEARNERS}"]
    prefix += [f"--inh-caps={READS_ALL}", f"--ambient-caps={READS_ALL}"]
    return [*prefix, "sh", "-c", f'umask {umask}; exec "$@"', "sh", *command]


def fetch_as(tiny: Tiny, user: int, umask: str = "022", pip: str = "deliver", **env: str) -> subprocess.Popen[str]:
    return tiny.start("fetch", pip=pip, prefix=as_user(user, umask=umask), **env)


def ends(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.mark.parametrize("umask", ["002", "022"])
def test_two_users_fetch_once_into_a_folder_of_their_group(shared: Tiny, tmp_path: Path, umask: str) -> None:
    shared.models.mkdir()
    os.chown(shared.models, ALICE, LEARNERS)
    shared.models.chmod(0o2775)
    gate = tmp_path / "gate"
    alice = fetch_as(shared, ALICE, umask, pip="gate", FAKE_PIP_GATE=str(gate))
    wait_until(shared.pip_runs, alice)
    bob = fetch_as(shared, BOB, umask)
    assert bob.stderr is not None
    assert "Another process is fetching the model" in bob.stderr.readline()
    gate.touch()
    assert [ends(alice)[0], ends(bob)[0]] == [0, 0]
    assert (len(shared.pip_runs()), damaged_files(), shared.leftovers()) == (1, [], [])
    assert shared.folder.stat().st_uid == ALICE

    (shared.folder / "config.json").write_text("{}")
    assert ends(fetch_as(shared, BOB, umask))[0] == 0  # Bob mends what Alice fetched
    assert (damaged_files(), shared.folder.stat().st_uid) == ([], BOB)
    if umask == "022":  # what is Alice's, only Alice can remove
        assert len(shared.leftovers()) == 1
        assert ends(fetch_as(shared, ALICE, umask))[0] == 0
    assert shared.leftovers() == []


def test_who_cannot_write_is_told_to_wait_and_can_read_then(shared: Tiny, tmp_path: Path) -> None:
    shared.home.chmod(0o755)
    gate = tmp_path / "gate"
    alice = fetch_as(shared, ALICE, pip="gate", FAKE_PIP_GATE=str(gate))
    wait_until(shared.pip_runs, alice)
    status, errors = ends(fetch_as(shared, BOB))
    assert status == 1
    assert f"Can't write the model to {shared.models} (Permission denied)" in errors
    assert errors.endswith("If someone else is fetching it there right now, try again when they are done.\n")
    gate.touch()
    assert ends(alice)[0] == 0
    assert ends(fetch_as(shared, BOB))[0] == 0
    assert len(shared.pip_runs()) == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_what_is_fetched_is_readable_for_others_as_far_as_the_umask_allows(tiny: Tiny) -> None:
    for umask, hidden in ((0o022, False), (0o077, True)):
        before = os.umask(umask)
        try:
            ensure_default_model()
        finally:
            os.umask(before)
        modes = [path.stat().st_mode for path in (tiny.models, tiny.folder, *tiny.folder.iterdir())]
        assert {bool(mode & stat.S_IROTH) for mode in modes} == {not hidden}
        assert {bool(mode & stat.S_IXOTH) for mode in modes if stat.S_ISDIR(mode)} == {not hidden}
        shutil.rmtree(tiny.models)


@pytest.mark.parametrize("what", ["models", "models/smollm2-135m/model.safetensors"])
def test_a_model_that_may_not_be_read_is_said_with_the_way_out(
    tiny: Tiny, no_root_powers: list[str], what: str
) -> None:
    ensure_default_model()
    (tiny.home / what).chmod(0)
    command = [*no_root_powers, *tiny.command("fetch")]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 1
        assert f"llmlesson: You don't have permission to read {tiny.folder}." in result.stderr
        advice = f"chmod -R a+rX {tiny.home}"
        assert advice in result.stderr
        assert "LLMLESSON_HOME" in result.stderr
        subprocess.run(advice.split(), check=True)
        assert "intact" in subprocess.run(command, capture_output=True, text=True).stdout
    finally:
        tiny.models.chmod(0o755)


LOAD = """\
import json, sys, time
from pathlib import Path
import llmlesson
from llmlesson.files import download, fetch
from llmlesson.engine import checkpoint

source, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
fetch.MODEL = download.Source(**json.loads(Path(source).read_text()))
read, reads = checkpoint._Tensors.read, 0

def read_and_wait(tensors, *args):
    global reads
    reads += 1
    if reads == 3:
        (folder / f"{name} is loading").touch()
        while not (folder / "replaced").exists():
            time.sleep(0.02)
    return read(tensors, *args)

checkpoint._Tensors.read = read_and_wait
print(llmlesson.load().generate([1, 2, 3], max_new_tokens=8).token_ids)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows does not replace files that are open")
def test_two_load_while_a_third_replaces_the_model(tiny: Tiny, tmp_path: Path) -> None:
    ensure_default_model()
    source = tiny.command()[2]
    loading = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, source, name, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for name, process in zip(("one", "two"), loading, strict=True):
        wait_until((tmp_path / f"{name} is loading").exists, process)
    template = tiny.folder / "chat_template.jinja"
    whole = template.read_text()
    template.write_text(whole[:-1] + "?")
    assert tiny.run("fetch").returncode == 0
    assert (template.read_text(), damaged_files(), tiny.leftovers()) == (whole, [], [])
    (tmp_path / "replaced").touch()
    outputs = [process.communicate(timeout=120) for process in loading]
    assert [process.returncode for process in loading] == [0, 0], outputs
    answers = [json.loads(out) for out, _ in outputs]
    assert answers[0] == answers[1]
    assert len(answers[0]) > 0
