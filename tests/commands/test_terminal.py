"""Terminals that a model must not command, and standard streams that are closed, full, or no text."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest
from engine import tiny

import llmlesson
from llmlesson import cli
from llmlesson.commands import run as run_command
from llmlesson.commands.terminal import visible
from llmlesson.engine import Step

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
LLMLESSON = f"env -u PYTHONUNBUFFERED {shlex.quote(sys.executable)} -m llmlesson.cli"


def shell(command):
    if "/dev/full" in command and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_control_characters_are_shown_and_not_obeyed():
    every = "".join(map(chr, range(0x250)))
    shown = visible(every)
    assert [c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160] == ["\t", "\n"]
    assert visible("\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\x00") == r"\x1b]0;title\x07\x1b[2J\x9b31m\x0d\x08\x00"
    assert visible("naïve 日本\t👩‍👩‍👧\nمرحبا") == "naïve 日本\t👩‍👩‍👧\nمرحبا"


def test_run_shows_what_the_model_says_without_letting_it_at_the_terminal(monkeypatch, capsys):
    said = ["Hi\n\tthere ", "\x1b[2J\x1b]52;c;ZWNobw==\x07", "\x9b0m bye"]

    class Engine:
        name, device = "a\x1bmodel", "cpu"

        def prompt_ids(self, prompt, chat):
            return [1]

        def stream(self, ids, max_new_tokens):
            for index, text in enumerate(said):
                reason = "eos" if index == len(said) - 1 else None
                yield Step(
                    index=index,
                    token_id=index,
                    text=text,
                    seconds=0.1,
                    cache_length=index + 1,
                    cache_nbytes=10,
                    finish_reason=reason,
                )

    monkeypatch.setattr(llmlesson, "load", lambda *_, **__: Engine())
    assert cli.main(["run", "Hello"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Hi\n\tthere \\x1b[2J\\x1b]52;c;ZWNobw==\\x07\\x9b0m bye\n"
    assert "\x1b" not in shown.err
    assert cli.main(["run", "Hello", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert json.loads(printed)["text"] == "".join(said)  # as data, nothing is lost


@pytest.mark.parametrize("command", [["run", "Hi", "--model"], ["size"], ["size", "--compare"]])
def test_no_command_passes_on_what_a_strangers_file_holds(tmp_path, capsys, command):
    tiny.make("gqa", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "\x1b[2J", "dtype": "\x1b[2J"}))
    cli.main([*command, str(tmp_path)])
    (tmp_path / "config.json").write_text(json.dumps({**config, "torch_dtype": "\x1b[2J", "sliding_window": "\x1b[2J"}))
    cli.main([*command, str(tmp_path)])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err.replace("\x1b[A", "")  # a progress bar's own


@pytest.mark.parametrize("arguments", ["size smollm2-135m", "--help", "--version", "size --help"])
@pytest.mark.parametrize(
    ("streams", "line"),
    [
        (">&-", "llmlesson: standard output is closed, so there is nowhere to write to."),
        (">/dev/full", "llmlesson: can't write to standard output (No space left on device)."),
    ],
)
def test_a_closed_or_full_output_ends_with_one_line(arguments, streams, line):
    result = shell(f"{LLMLESSON} {arguments} {streams}")
    assert (result.returncode, result.stderr) == (1, line + "\n")


def test_a_full_output_without_a_buffer_ends_with_one_line():
    line = "llmlesson: can't write to standard output (No space left on device).\n"
    result = shell(f"{shlex.quote(sys.executable)} -u -m llmlesson.cli size smollm2-135m >/dev/full")
    assert (result.returncode, result.stderr) == (1, line)


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
def test_other_closed_streams_change_nothing(streams):
    expected = shell(f"{LLMLESSON} size smollm2-135m")
    result = shell(f"{LLMLESSON} size smollm2-135m {streams}")
    assert (result.returncode, result.stdout, result.stderr) == (0, expected.stdout, "")


@pytest.mark.parametrize("streams", [">&- 2>&- <&-", ">/dev/full 2>/dev/full", "2>&- >/dev/full", "2>/dev/full"])
def test_where_nothing_can_be_said_the_status_says_it(streams):
    result = shell(f"{LLMLESSON} size no-such-model {streams}")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("<&-", "Standard input is closed. Give the prompt itself instead of -."),
        ("</dev/zero", "Standard input has more than 10,000,000 characters"),
        ("<LATIN", "Standard input is not text in utf-8"),
    ],
)
def test_a_standard_input_that_is_no_prompt_is_said(tmp_path, given, message):
    (tmp_path / "latin").write_bytes("naïve".encode("latin-1"))
    given = given.replace("LATIN", shlex.quote(str(tmp_path / "latin")))
    result = shell(f"PYTHONIOENCODING=utf-8:strict {LLMLESSON} run - {given}")
    assert (result.returncode, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_error_that_is_not_the_outputs_is_not_called_so(monkeypatch):
    def fail(args):
        raise OSError(28, "No space left on device", "some file")

    monkeypatch.setattr(run_command, "run", fail)
    with pytest.raises(OSError, match="some file"):
        cli.main(["run", "Hi"])


def test_no_file_takes_the_place_of_a_closed_stream():
    code = ""
    code += "from llmlesson.commands.terminal import open_closed_streams; open_closed_streams()\n"
    code += "print(open('/dev/null').fileno() > 2)"
    assert shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&- 2>&-").stdout == "True\n"
