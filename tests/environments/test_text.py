"""Text on systems whose own encoding is not UTF-8, as on Windows."""

import ast
import io
import json
import sys
from pathlib import Path

import pytest

from llmlesson import cli
from llmlesson.doctor.finding import ok

ROOT = Path(__file__).resolve().parents[2]
TEXT = {"open", "read_text", "write_text", "fdopen", "NamedTemporaryFile"}
# A file descriptor, bytes in a zip file, a database; and llmlesson.files.model_files', which is no method.
NO_TEXT = {"os.open", "archive.open", "dbm.open", "read_text"}


def opened_without_encoding(path: Path) -> list[str]:
    """Where a file is opened as text in the system's own encoding, which on Windows is cp1252 up to Python 3.14."""
    found = []
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in TEXT:
            words = {arg.value for arg in call.args if isinstance(arg, ast.Constant)}
            said = "utf-8" in words or any(keyword.arg == "encoding" for keyword in call.keywords)
            if not said and not words & {"rb", "wb", "rb+", "ab"} and ast.unparse(call.func) not in NO_TEXT:
                found.append(f"{path.relative_to(path.anchor)}:{call.lineno}")
    return found


def test_text_files_are_opened_with_their_encoding(tmp_path):
    sources = [path for folder in ("llmlesson", "tools", "deploy") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    assert [place for path in sources for place in opened_without_encoding(path)] == []
    (tmp_path / "a.py").write_text("open('x')\np.open('w')\np.read_text()\nopen('x', 'rb')\n", encoding="utf-8")
    assert [place[-1] for place in opened_without_encoding(tmp_path / "a.py")] == ["1", "2", "3"]


def run(command: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints where standard output can show that encoding alone."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", shown)
    assert cli.main(command) == 0
    shown.flush()
    return shown.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_what_cannot_be_shown_is_replaced(encoding, monkeypatch):
    command = ["size", "smollm2-135m", "--tokens", "100000"]
    complete = run(command, "utf-8", monkeypatch)
    with pytest.raises(UnicodeEncodeError):
        complete.encode(encoding)
    assert run(command, encoding, monkeypatch) == complete.encode(encoding, errors="replace").decode(encoding)


def test_json_says_all_in_ascii(monkeypatch):
    """It is read by programs, and nothing in it may be lost on the way."""
    answer = {"step": "🍵"}
    monkeypatch.setattr(
        "llmlesson.commands.run.summarize", lambda *args: {"finish_reason": "eos", "model": answer["step"]}
    )
    engine = type("Engine", (), {"prompt_ids": lambda *args, **kwargs: [], "stream": lambda *args, **kwargs: []})
    monkeypatch.setattr("llmlesson.load", lambda *args, **kwargs: engine())
    text = run(["run", "--json", "Hello"], "ascii", monkeypatch)
    assert json.loads(text)["model"] == "🍵"
    monkeypatch.setattr("llmlesson.doctor.examine", lambda **options: [ok("model", "🍵")])
    [finding] = json.loads(run(["doctor", "--json"], "ascii", monkeypatch))
    assert finding["what"] == "🍵"
