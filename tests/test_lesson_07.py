"""What lesson 07 says in words is so, and its cells are what the words say of them."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path

from llmlesson.server import Server

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "07_serving.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
SOURCE = {cell["id"]: "".join(cell["source"]) for cell in CELLS}


def shown(name):
    [cell] = [cell for cell in CELLS if cell["id"] == name]
    return "".join("".join(o.get("text", o.get("data", {}).get("text/plain", ""))) for o in cell["outputs"])


def test_the_small_server_is_as_long_as_it_says():
    assert "## Step 4 · A server in 25 lines" in PROSE
    server = SOURCE["small-server"].partition("def text_of")[0] + SOURCE["small-server"].partition("with Threading")[2]
    assert 20 <= sum(bool(line.strip()) for line in server.splitlines()) <= 30
    assert "the same as from the real server: True" in shown("small-server")


def test_the_pieces_are_what_is_said_of_them():
    pieces = [eval(line) for line in shown("raw").splitlines() if line]
    stream = b"".join(pieces)
    head, _, body = stream.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"content-length" not in head.lower()
    assert b"transfer-encoding: chunked" in head.lower()
    assert stream.count(b"HTTP/1.1") == 1  # one head for all tokens
    chunks, data = [], body
    while data:
        length, _, data = data.partition(b"\r\n")
        chunks.append(data[: int(length, 16)])
        data = data[int(length, 16) + 2 :]
    assert chunks[-1] == b""  # "a piece of length 0 says that this was all"
    events = [json.loads(chunk[6:]) for chunk in chunks[:-1] if chunk != b"data: [DONE]\n\n"]
    assert len({(event["id"], event["model"], event["created"]) for event in events}) == 1
    assert events[-1]["usage"]["completion_tokens"] == 8
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    texts = [event["choices"][0]["delta"].get("content", "") for event in events if event["choices"]]
    assert "".join(texts) == "The capital of France is Paris."
    letters = sum(map(len, texts)) / sum(map(bool, texts))
    assert "Some sixty times as many bytes as letters" in PROSE
    assert 50 < 244 / letters < 70
    assert "Measured: 244 bytes." in shown("reveal-bytes")


def test_how_many_requests_the_server_takes():
    assert f"This server takes {signature(Server).parameters['queue'].default} requests at once" in PROSE


def test_it_leaves_nothing_running():
    assert "server.stop()" in SOURCE["stop"]
    assert "small.shutdown()" in SOURCE["small-server"].partition("finally:")[2]
    assert "with Server(" in SOURCE["three"]
    assert not any("port=" in source or ":8000" in source for source in SOURCE.values())
