"""Faults that other servers had, as tests of this one. Some more are in the tests of their subject."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest
import torch

from llmlesson.engine import Request
from llmlesson.server import reply

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "a1 b"}]


def events(client, path, **body):
    content = client.post(path, json={**body, "stream": True}).raise_for_status().content
    return [json.loads(part.removeprefix(b"data: ")) for part in content.split(b"\n\n")[:-2]]


def text_of(chunks, index=0):
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


@pytest.fixture
def says(engine, monkeypatch):
    """says(text): from now on the model's answers are this text, as the tokenizer cuts it."""

    def script(text):
        ids = [*engine.tokenizer.encode(text), *engine.eos_token_ids]
        monkeypatch.setattr(Request, "choose", lambda self, logits: torch.tensor(ids[len(self.token_ids)]))

    return script


def test_one_id_and_one_time_with_several_choices_and_across_seconds(client, monkeypatch):
    seconds = iter(range(10**6))
    monkeypatch.setattr(reply.time, "time", lambda: next(seconds))
    chunks = events(client, CHAT, messages=MESSAGES, n=3, max_tokens=5, stream_options={"include_usage": True})
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


@pytest.mark.parametrize(("path", "prompt"), [(CHAT, {"messages": MESSAGES}), (TEXT, {"prompt": "a"})])
def test_usage_is_in_one_event_only_and_has_no_choices(client, path, prompt):
    chunks = events(client, path, **prompt, max_tokens=5, ignore_eos=True, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 5)


@pytest.mark.parametrize(("path", "prompt"), [(CHAT, {"messages": MESSAGES}), (TEXT, {"prompt": "a"})])
def test_a_stop_string_over_several_tokens_leaks_nothing(client, says, path, prompt):
    says("one two three END four")
    body = {**prompt, "max_tokens": 40, "stop": ["END"]}
    chunks = events(client, path, **body)
    whole = client.post(path, json=body).json()["choices"][0]
    assert text_of(chunks) == (whole.get("text") or whole["message"]["content"]) == "one two three "
    pieces = [choice for chunk in chunks for choice in chunk["choices"]]
    empty = [piece for piece in pieces if not (piece.get("text") or piece.get("delta", {}).get("content"))]
    assert len(empty) == 1  # the end: a token that adds no text makes no event


def test_a_stop_string_across_the_prompts_border_does_not_count(client, says):
    says("ND and on")
    choice = client.post(TEXT, json={"prompt": "the E", "stop": "END", "max_tokens": 40, "echo": True}).json()
    assert choice["choices"][0]["text"] == "the END and on"


@pytest.mark.parametrize("text", ["a 👩‍👩‍👧 é", 'x\u2028y\u0085z "quotes" \\ \r\n \t data: [DONE]\n\n', "שלום"])
def test_characters_arrive_whole_and_no_line_end_breaks_an_event(client, says, text):
    says(text)
    chunks = events(client, CHAT, messages=MESSAGES, max_tokens=100)
    assert text_of(chunks) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in json.dumps(chunk, ensure_ascii=False) for chunk in chunks)
    says("é")  # two tokens
    cut = events(client, CHAT, messages=MESSAGES, max_tokens=1)
    assert text_of(cut) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_over_the_context_is_refused_alike(client, path):
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "a1 b"}
    error = client.post(path, json={**prompt, "max_tokens": 128}).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == next(iter(prompt))
    assert "128 tokens" in error["message"]


def test_what_a_chat_template_refuses_is_the_clients_fault(client, engine, monkeypatch):
    monkeypatch.setattr(engine.tokenizer, "_chat_template", "{{ raise_exception('Roles must alternate') }}")
    response = client.post(CHAT, json={"messages": MESSAGES})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    assert "Roles must alternate" in response.json()["error"]["message"]


def test_parts_of_a_message_are_joined_and_an_image_is_named(client):
    parts = [{"type": "text", "text": "a1"}, {"type": "text", "text": " b"}]
    greedy = {"max_tokens": 5, "temperature": 0}
    answers = [
        client.post(CHAT, json={**greedy, "messages": [{"role": "user", "content": content}]}).json()["choices"]
        for content in (parts, "a1 b")
    ]
    assert answers[0] == answers[1]
    parts[1] = {"type": "image_url", "image_url": {"url": "data:,"}}
    response = client.post(CHAT, json={"messages": [{"role": "user", "content": parts}]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages[0].content[1]")


def test_no_page_elsewhere_is_let_in(client):
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    response = client.request("OPTIONS", CHAT, headers=headers)
    assert response.status_code == 405
    for answer in (response, client.get("/v1/models", headers=headers)):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_declared_length_is_refused_before_the_body_comes(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**12}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_seed_changes_the_text_and_not_the_temperature(client):
    texts = {
        seed: {
            client.post(CHAT, json={"messages": MESSAGES, "max_tokens": 12, "seed": seed}).json()["choices"][0][
                "message"
            ]["content"]
            for _ in range(2)
        }
        for seed in range(4)
    }
    assert all(len(same) == 1 for same in texts.values())
    assert len(set.union(*texts.values())) > 1


def test_ids_of_answers_are_unique_even_with_the_same_request_id(client):
    headers = {"X-Request-Id": "the same"}
    ids = {client.post(CHAT, json={"messages": MESSAGES, "max_tokens": 1}, headers=headers).json()["id"] for _ in "ab"}
    assert len(ids) == 2
    assert all(one.startswith("chatcmpl-") for one in ids)


def test_one_who_waits_in_the_queue_and_leaves_frees_the_place(paced):
    server = paced(0.02, slots=1, queue=2)
    body = {"messages": MESSAGES, "max_tokens": 200, "stream": True}
    with httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as running:
        pieces = running.iter_raw()  # held: a reader that nobody holds closes its response
        next(pieces)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + CHAT, json={**body, "stream": False}, timeout=0.3, trust_env=False)
        until = time.monotonic() + 20
        status = 0
        while status != 200 and time.monotonic() < until:
            with httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as response:
                status = response.status_code
        assert status == 200
