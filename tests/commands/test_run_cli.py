"""`llmlesson run` as a user runs it: a process, its output, its exit status."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from llmlesson import cli

COMMAND = [sys.executable, "-m", "llmlesson.cli", "run"]
PROMPT = "Explain quantum computing like I'm ten."


def run(*args, **kwargs):
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, encoding="utf-8", timeout=120, stdin=subprocess.DEVNULL, **kwargs
    )


def test_the_answer_is_on_stdout_and_the_summary_on_stderr():
    result = run(PROMPT, "--max-new-tokens", "8", env={**os.environ, "TERM": "dumb"})
    assert result.returncode == 0, result.stderr
    assert result.stdout == "In the realm of computing, I'm\n"
    for part in (
        "prompt  38 tokens",
        "answer  8 tokens",
        "time to first token",
        "median inter-token",
        "tokens/s",
        "KV cache  2,073,600 bytes",  # 45 positions of 46,080 bytes: the 8th token is never read
        "reached --max-new-tokens",
    ):
        assert part in result.stderr


def test_json_is_one_object():
    result = run("Say hi", "--json", "--max-new-tokens", "3", "--no-chat")
    answer = json.loads(result.stdout)
    assert answer["new_tokens"] == 3
    assert answer["kv_cache_nbytes"] == answer["kv_cache_tokens"] * 46_080
    assert answer["finish_reason"] == "length"
    assert answer["text"]
    assert answer["time_to_first_token"] > 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["", "--no-chat"], "prompt is empty"),
        (["Hi", "--model", "no-such-model"], "no model or folder 'no-such-model'"),
        (["Hi", "--max-new-tokens", "0"], "max_new_tokens"),
    ],
)
def test_errors_are_a_sentence_and_status_1(args, message, capsys):
    assert cli.main(["run", *args]) == 1
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process")
def test_ctrl_c_ends_with_the_summary_so_far():
    process = subprocess.Popen(
        [*COMMAND, PROMPT, "--max-new-tokens", "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout.read(10) == b"In the rea"  # it streams: the answer is far from its end
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"stopped because  interrupted" in errors
    assert b"time to first token" in errors
    assert b"Traceback" not in errors


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_reader_that_goes_away_is_no_traceback():
    command = f"'{sys.executable}' -m llmlesson.cli run Hello | head -c 1"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert len(result.stdout) == 1
    assert "Traceback" not in result.stderr


def test_a_reader_that_was_gone_before_anything_was_written():
    reader, writer = os.pipe()
    os.close(reader)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "llmlesson.cli", "size", "smollm2-135m"]
    try:
        result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env, timeout=120)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("platform", "error", "is_gone"),
    [
        ("win32", OSError(errno.EINVAL, "Invalid argument"), True),
        ("win32", OSError(errno.EINVAL, "Invalid argument", "odd?name.html"), False),
        ("win32", OSError(errno.EIO, "Input/output error"), False),
        ("linux", OSError(errno.EINVAL, "Invalid argument"), False),
        ("linux", OSError(errno.EPIPE, "Broken pipe"), True),
    ],
)
def test_windows_has_its_own_name_for_a_reader_that_is_gone(monkeypatch, platform, error, is_gone):
    def fail(args):
        raise error

    with open(os.devnull, "w") as shown:
        monkeypatch.setattr(sys, "stdout", shown)
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setattr("llmlesson.commands.fetch.run", fail)
        if is_gone:
            assert cli.main(["fetch"]) == 141
        else:
            with pytest.raises(OSError, match=re.escape(str(error))):
                cli.main(["fetch"])
