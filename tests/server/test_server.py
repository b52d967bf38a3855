"""The server over real sockets: answers, streams, errors, clients that leave, and the official client."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import openai
import pytest

from llmlesson.errors import LessonError
from llmlesson.server import Server
from llmlesson.server.app import MAX_BODY
from llmlesson.server.paced import PacedBackend

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "a1 b"}]
GREEDY = {"messages": MESSAGES, "temperature": 0, "max_tokens": 8}


def events(response):
    """The events of a streamed response, "[DONE]" as it is."""
    parts = response.content.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith(b"data: ") and b"\n" not in part and part.isascii() for part in parts)
    texts = [part.removeprefix(b"data: ").decode() for part in parts]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def settle(done, seconds=20):
    """Wait until something that another thread does has happened."""
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.01)
    assert done()


def test_an_answer_is_the_engines(client, engine):
    body = client.post(CHAT, json=GREEDY).raise_for_status().json()
    expected = engine.generate(MESSAGES, max_new_tokens=8)
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected.text}
    assert choice["finish_reason"] == {"eos": "stop", "length": "length"}[expected.finish_reason]
    assert body["usage"] == {
        "prompt_tokens": len(expected.prompt_ids),
        "completion_tokens": len(expected.token_ids),
        "total_tokens": len(expected.prompt_ids) + len(expected.token_ids),
    }
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"


def test_a_stream_says_the_same_in_pieces(client):
    whole = client.post(CHAT, json=GREEDY).json()
    response = client.post(CHAT, json={**GREEDY, "stream": True, "stream_options": {"include_usage": True}})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    *chunks, usage, done = events(response)
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in (*chunks, usage)}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [delta for delta in deltas if "role" in delta] == deltas[:1]
    assert "".join(delta.get("content", "") for delta in deltas) == whole["choices"][0]["message"]["content"]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [whole["choices"][0]["finish_reason"]]


def test_usage_only_where_it_is_asked_for(client):
    chunks = events(client.post(CHAT, json={**GREEDY, "stream": True}))[:-1]
    assert all("usage" not in chunk and len(chunk["choices"]) == 1 for chunk in chunks)


def test_a_stop_string_ends_the_text_before_it_streamed_or_not(client):
    longer = {**GREEDY, "max_tokens": 20, "ignore_eos": True, "temperature": 1, "seed": 3}
    text = client.post(CHAT, json=longer).json()["choices"][0]["message"]["content"]
    stop = text[3:6]
    body = {**longer, "stop": stop}
    [choice] = client.post(CHAT, json=body).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text[: text.index(stop)], "stop")
    chunks = events(client.post(CHAT, json={**body, "stream": True}))[:-1]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == text[: text.index(stop)]


def test_completions(client, engine):
    body = {"prompt": ["a1 b", "b"], "temperature": 0, "max_tokens": 4}
    answers = client.post("/v1/completions", json=body).json()
    expected = [engine.generate(prompt, max_new_tokens=4, chat=False).text for prompt in body["prompt"]]
    assert [choice["text"] for choice in answers["choices"]] == expected
    assert [choice["index"] for choice in answers["choices"]] == [0, 1]
    assert answers["object"] == "text_completion"
    ids = engine.prompt_ids("a1 b", chat=False)
    assert client.post("/v1/completions", json={**body, "prompt": ids}).json()["choices"][0]["text"] == expected[0]
    assert events(client.post("/v1/completions", json={**body, "stream": True}))[-1] == "[DONE]"


def test_n_choices_differ_and_a_seed_repeats_them(client):
    body = {"messages": MESSAGES, "max_tokens": 12, "n": 3, "seed": 5}
    first, again = (client.post(CHAT, json=body).json() for _ in range(2))
    texts = [choice["message"]["content"] for choice in first["choices"]]
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert texts == [choice["message"]["content"] for choice in again["choices"]]
    assert len(set(texts)) > 1
    chunks = events(client.post(CHAT, json={**body, "stream": True}))[:-1]
    for index in range(3):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in own) == texts[index]
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == [
            first["choices"][index]["finish_reason"]
        ]
    assert first["usage"]["prompt_tokens"] == client.post(CHAT, json=GREEDY).json()["usage"]["prompt_tokens"]


def test_the_new_name_of_max_tokens_wins_and_null_is_absent(client):
    body = {"messages": MESSAGES, "temperature": None, "stop": None, "n": None, "stream": None, "seed": None}
    assert client.post(CHAT, json={**body, "max_tokens": None}).status_code == 200
    answer = client.post(CHAT, json={**body, "max_tokens": 9, "max_completion_tokens": 3, "ignore_eos": True}).json()
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "gpt-4o"}, 404, "model"),
        ({"messages": None}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user"}]}, 400, "messages"),
        ({"temperature": 2.5}, 400, "temperature"),
        ({"temperature": "warm"}, 400, "temperature"),
        ({"top_p": -1}, 400, "top_p"),
        ({"n": 0}, 400, "n"),
        ({"n": True}, 400, "n"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 1.5}, 400, "max_tokens"),
        ({"max_tokens": 10_000}, 400, "messages"),
        ({"seed": 0.5}, 400, "seed"),
        ({"stop": [""]}, 400, "stop"),
        ({"stop": list("abcde")}, 400, "stop"),
        ({"stream": "yes"}, 400, "stream"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"logit_bias": {"5": 100}}, 400, "logit_bias"),
        ({"logprobs": 3}, 400, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
        ({"top_logprobs": 2}, 400, "top_logprobs"),
        ({"presence_penalty": 2.5}, 400, "presence_penalty"),
        ({"frequency_penalty": "1"}, 400, "frequency_penalty"),
        ({"echo": True}, 400, "echo"),
        ({"min_tokens": 9}, 400, "min_tokens"),
        ({"min_tokens": 2, "stop": "a"}, 400, "min_tokens"),
    ],
)
def test_what_is_wrong_or_not_there_is_refused_by_name(client, change, status, param):
    response = client.post(CHAT, json={**GREEDY, **change})
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)
    assert response.json()["error"]["message"]


def test_what_changes_nothing_is_accepted(client):
    extra = {"user": "me", "store": False, "metadata": {}, "tools": [], "response_format": {"type": "text"}, "new": 1}
    assert client.post(CHAT, json={**GREEDY, **extra}).status_code == 200


def test_a_prompt_over_the_context_names_the_numbers(client):
    response = client.post(CHAT, json={"messages": [{"role": "user", "content": "a" * 500}]})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "128 tokens" in error["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"1", b'"x"', b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_object(client, body):
    response = client.post(CHAT, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nothing", 404), ("GET", CHAT, 405)])
def test_other_paths_and_methods_answer_in_json(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_a_body_that_is_too_large_is_not_held(client):
    response = client.post(CHAT, content=(b"x" * 65536 for _ in range(2 + MAX_BODY // 65536)))
    assert response.status_code == 413


def test_foreign_hosts_are_refused(server):
    with httpx.Client(trust_env=False) as client:
        assert client.get(f"{server.url}/health", headers={"Host": "evil.example"}).status_code == 403
        for host in ("localhost:1234", "127.0.0.1", "[::1]:8000"):
            assert client.get(f"{server.url}/health", headers={"Host": host}).status_code == 200


def test_a_key(paced):
    server = paced(api_key="secret")
    body = {"messages": MESSAGES, "max_tokens": 1}
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        response = httpx.post(server.url + CHAT, json=body, headers=headers, trust_env=False)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    headers = {"Authorization": "Bearer secret"}
    assert httpx.post(server.url + CHAT, json=body, headers=headers, trust_env=False).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_request_and_blocks(server, batch, stream):
    body = {"messages": MESSAGES, "max_tokens": 90, "ignore_eos": True, "stream": stream}
    slow = batch.step
    batch.step = lambda: (time.sleep(0.02), slow())[1]  # so that it is there to be left
    free = batch.pool.num_free
    if stream:
        with httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as response:
            next(response.iter_raw())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + CHAT, json=body, timeout=0.3, trust_env=False)
    settle(lambda: len(batch) == 0)
    assert batch.pool.num_free == free
    batch.pool.check()
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    settle(lambda: 'finished_reason="abort"' in httpx.get(f"{server.url}/metrics", trust_env=False).text)
    assert metrics


def test_many_at_once_and_some_leave(server, batch):
    """40 clients, every fourth of which leaves after its first piece; nothing is left over."""
    wrong = []

    def one(number):
        body = {"messages": [{"role": "user", "content": f"a{number}"}], "max_tokens": 12, "stream": True}
        try:
            with httpx.stream("POST", server.url + CHAT, json=body, trust_env=False, timeout=120) as response:
                if number % 4 == 0:
                    next(response.iter_raw())
                    return
                content = b"".join(response.iter_raw())
            assert content.endswith(b"data: [DONE]\n\n")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
    settle(lambda: len(batch) == 0)
    assert batch.pool.num_free == batch.pool.num_blocks
    batch.pool.check()


def test_a_full_queue_is_told_so(paced):
    server = paced(0.05, queue=2)
    body = {"messages": MESSAGES, "max_tokens": 40, "stream": True}
    with (
        httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as first,
        httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as second,
    ):
        assert first.status_code == second.status_code == 200
        third = httpx.post(server.url + CHAT, json=body, trust_env=False)
    assert third.status_code == 429
    assert third.headers["retry-after"] == "1"
    assert third.json()["error"]["code"] == "queue_full"


def test_requests_that_come_together_do_not_overfill_the_queue(paced, monkeypatch):
    """All are checked before the first of them is tokenized and in the queue."""
    tokenize = PacedBackend.requests
    monkeypatch.setattr(PacedBackend, "requests", lambda self, call: (time.sleep(0.3), tokenize(self, call))[1])
    server = paced(0.01, queue=2)
    statuses = []

    def one():
        response = httpx.post(server.url + CHAT, json={"messages": MESSAGES, "max_tokens": 100}, trust_env=False)
        statuses.append(response.status_code)

    threads = [threading.Thread(target=one) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(statuses) == [200, 200, 429, 429, 429]


def test_an_engine_that_fails_is_no_clean_end(server, batch):
    count, step = iter(range(100)), batch.step

    def failing():
        if next(count) == 3:
            raise RuntimeError("out of luck")
        return step()

    batch.step = failing
    body = {"messages": MESSAGES, "max_tokens": 30, "ignore_eos": True}
    *_, error, done = events(httpx.post(server.url + CHAT, json={**body, "stream": True}, trust_env=False))
    assert (error["error"]["message"], done) == ("out of luck", "[DONE]")
    count = iter(range(3, 100))
    response = httpx.post(server.url + CHAT, json=body, trust_env=False)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
    assert 'finished_reason="error",model_name="tiny"} 2.0' in httpx.get(f"{server.url}/metrics", trust_env=False).text
    batch.step = step
    assert httpx.post(server.url + CHAT, json=GREEDY, trust_env=False).status_code == 200


def test_scores_that_are_no_numbers_are_an_error_of_their_request_alone(server, engine, monkeypatch):
    monkeypatch.setattr(engine.model, "logits", lambda x: x.new_full((len(x), engine.config.vocab_size), float("nan")))
    body = {"messages": MESSAGES, "max_tokens": 3, "temperature": 1}
    response = httpx.post(server.url + CHAT, json=body, trust_env=False, timeout=60)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
    assert "NaN or infinite" in response.json()["error"]["message"]
    *_, error, done = events(httpx.post(server.url + CHAT, json={**body, "stream": True}, trust_env=False, timeout=60))
    assert ("NaN" in error["error"]["message"], done) == (True, "[DONE]")
    monkeypatch.undo()
    assert httpx.post(server.url + CHAT, json=GREEDY, trust_env=False).status_code == 200


def test_draining_lets_those_that_run_end(paced):
    server = paced(0.03)
    body = {"messages": MESSAGES, "max_tokens": 20, "stream": True}
    with httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as response:
        drained = threading.Thread(target=server.drain)
        drained.start()
        settle(lambda: httpx.get(f"{server.url}/health", trust_env=False).status_code == 503)
        assert httpx.post(server.url + CHAT, json=body, trust_env=False).status_code == 503
        content = b"".join(response.iter_raw())
    drained.join(20)
    assert not drained.is_alive()
    assert b'"finish_reason":"length"' in content


def test_stopping_with_an_open_stream_tells_it_and_prints_nothing(paced, capfd):
    server = paced(0.05)
    body = {"messages": MESSAGES, "max_tokens": 1000, "stream": True}
    with httpx.stream("POST", server.url + CHAT, json=body, trust_env=False) as response:
        pieces = response.iter_raw()
        next(pieces)
        threading.Thread(target=server.stop).start()
        rest = b"".join(pieces)
    assert b"shutting down" in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    settle(lambda: repr(server) == "Server(paced, not running)")
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken(paced):
    port = int(paced().url.rpartition(":")[2])
    with pytest.raises(LessonError, match=f"Port {port} can't be used"):
        paced(port=port)


def test_the_metrics_count_tokens(client):
    client.post(CHAT, json={**GREEDY, "max_tokens": 5, "ignore_eos": True})
    text = client.get("/metrics").text
    assert 'llmlesson_generation_tokens_total{model_name="tiny"} 5.0' in text
    assert 'llmlesson_request_success_total{finished_reason="length",model_name="tiny"} 1.0' in text
    assert 'llmlesson_inter_token_latency_seconds_count{model_name="tiny"} 4.0' in text
    for name in ("queue_time_seconds", "prefill_time_seconds", "decode_time_seconds", "time_per_output_token_seconds"):
        assert f'llmlesson_request_{name}_count{{model_name="tiny"}} 1.0' in text
    assert 'llmlesson_request_generation_tokens_sum{model_name="tiny"} 5.0' in text
    total = [metric(text, f"{name}_seconds_sum") for name in ("request_queue_time", "request_prefill_time")]
    assert sum(total) == pytest.approx(metric(text, "time_to_first_token_seconds_sum"))
    assert 'llmlesson_num_requests_running{model_name="tiny"} 0.0' in text
    assert metric(text, "request_time_per_output_token_seconds_sum") == pytest.approx(
        metric(text, "request_decode_time_seconds_sum") / 4
    )


def test_the_metrics_count_what_was_found_in_the_cache(client):
    ids = list(range(40, 76))  # two full blocks of 16, and the rest
    for _ in range(2):
        client.post("/v1/completions", json={"prompt": ids, "max_tokens": 2, "ignore_eos": True})
    text = client.get("/metrics").text
    assert metric(text, "prefix_cache_queries_total") == 2 * len(ids)
    assert metric(text, "prefix_cache_hits_total") == 32
    assert metric(text, "num_preemptions_total") == 0


def metric(text, name):
    return float(re.search(rf"^llmlesson_{name}{{.*}} (.*)$", text, re.MULTILINE)[1])


def test_the_table_of_metrics_is_complete(client):
    shown = set(
        re.findall(r"^# TYPE llmlesson_(\w+?)(?:_total)? (?!.*_created)", client.get("/metrics").text, re.MULTILINE)
    )
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+?)(?:_total)?(?:{\w+})?`", page.partition("## Metrics")[2].partition("Not here")[0])
    assert {name for name in shown if not name.endswith("_created")} <= set(listed)


def test_two_servers_over_one_engine_answer_alike(engine):
    with Server(engine) as one, Server(engine) as other:
        answers = [httpx.post(s.url + CHAT, json=GREEDY, trust_env=False).json()["choices"] for s in (one, other)]
    assert answers[0] == answers[1]


def test_the_official_client(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
    options = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 8}
    whole = client.chat.completions.create(**options)
    stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.completions.create(model="tiny", prompt="a", max_tokens=3).choices[0].text is not None
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
        client.chat.completions.create(**{**options, "model": "gpt"})
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(**{**options, "temperature": 5})


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_address_and_stops_cleanly(number):
    command = [sys.executable, "-m", "llmlesson.cli", "serve", "--engine", "paced", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        url = process.stdout.readline().removeprefix("Listening on ").strip()
        answer = httpx.post(f"{url}/chat/completions", json={"messages": MESSAGES, "max_tokens": 3}, trust_env=False)
        assert answer.json()["usage"]["completion_tokens"] == 3
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_the_paced_server_needs_no_torch():
    code = "import sys, llmlesson.server.paced, llmlesson.server.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0
