"""Many clients at once: some leave, some read slowly, some send nonsense. And two engines over one model."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmlesson import Sampling
from llmlesson.batching.batch_engine import BatchEngine

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "a1 b"}]


def settle(done, seconds=60):
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.01)
    assert done()


def test_200_clients_that_leave_at_random_leak_nothing(server, batch):
    chance = random.Random(1)
    whole, wrong = [], []

    async def one(client, number):
        body = {"messages": [{"role": "user", "content": f"a{number}"}], "max_tokens": 12, "ignore_eos": True}
        patience = chance.choice([0.001, 0.05, 0.3, 1.0, 100.0])
        try:
            async with asyncio.timeout(patience):
                async with client.stream("POST", CHAT, json={**body, "stream": number % 2 == 0}) as response:
                    content = b"".join([piece async for piece in response.aiter_raw()])
                whole.append(content)
                if response.status_code != 200 or (number % 2 == 0 and not content.endswith(b"[DONE]\n\n")):
                    wrong.append(content)
        except TimeoutError:
            pass  # it left

    async def all_of_them():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=100, limits=limits) as client:
            await asyncio.gather(*(one(client, number) for number in range(200)))

    asyncio.run(all_of_them())
    assert wrong == []
    assert 0 < len(whole) < 200
    settle(lambda: len(batch) == 0)
    settle(lambda: batch.pool.num_free == batch.pool.num_blocks)
    batch.pool.check()
    assert not server._service._open
    answer = httpx.post(server.url + CHAT, json={"messages": MESSAGES, "max_tokens": 2}, trust_env=False)
    assert answer.status_code == 200


def test_a_slow_reader_holds_nobody_up(paced):
    """More bytes than the system's buffers take: the stream waits for its reader, the engine and the others don't."""
    server = paced(token_seconds=0.0)
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"messages": MESSAGES, "max_tokens": 4000, "n": 8, "stream": True}).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(60)
        slow.connect((host, int(port)))
        slow.sendall(f"POST {CHAT} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        received = slow.recv(100)
        other = httpx.post(
            server.url + CHAT, json={"messages": MESSAGES, "max_tokens": 50}, trust_env=False, timeout=60
        )
        assert other.json()["usage"]["completion_tokens"] == 50
        settle(lambda: len(server._worker) == 0)  # the engine has made all of the slow one's tokens
        settle(lambda: server.log)  # an entry comes after its client has the answer
        assert [len(entry["choices"]) for entry in server.log] == [1]  # the slow one's stream has not ended
        parts = [received]
        while part := slow.recv(1 << 20):
            parts.append(part)
    assert b"".join(parts).count(b'"finish_reason":"length"') == 8


@pytest.mark.parametrize("seed", [None, 5])
def test_two_batch_engines_over_one_model_from_two_threads(engine, seed):
    prompts = [[f"a{number} b" for number in range(6)], [f"b{number}" for number in range(6)]]
    sampling = Sampling() if seed is None else Sampling(1.0, seed=seed)

    def answers(texts):
        batch = BatchEngine(engine, blocks=64)
        result = [one.token_ids for one in batch.generate(texts, 20, sampling)]
        batch.pool.check()
        return result

    alone = [answers(texts) for texts in prompts]
    for _ in range(3):
        together = [None, None]

        def run(place, together=together):
            together[place] = answers(prompts[place])

        threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert together == alone


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
FIELDS = {
    CHAT: [
        *("messages", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty", "min_tokens", "echo"),
        *("model", "temperature", "top_p", "n", "stop", "seed", "stream", "max_tokens", "min_p", "top_k"),
        *("stream_options", "tools"),
    ],
    TEXT: ["prompt", "logprobs", "echo", "max_tokens", "min_tokens", "n", "stop", "stream", "suffix", "best_of"],
    "/tokenize": ["prompt", "messages", "model", "add_special_tokens", "return_token_strs", "add_generation_prompt"],
    "/detokenize": ["tokens", "model"],
}
# A busy machine may be slow to answer, and that is no fault of the examples.
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
FUZZ = settings(deadline=None, max_examples=25, suppress_health_check=SLOW)


@pytest.mark.parametrize("path", FIELDS)
@FUZZ
@given(data=st.data())
def test_no_body_makes_the_server_fail(client, path, data):
    body = {"messages": MESSAGES, "prompt": "a", "max_tokens": 2} if path in (CHAT, TEXT) else {}
    change = data.draw(st.dictionaries(st.sampled_from(FIELDS[path]), ANYTHING, max_size=3))
    response = client.post(path, json={**body, **change})
    assert response.status_code in (200, 400, 404, 429)


NUMBERS = st.integers(-3, 30) | st.floats(-3, 3) | st.none()


@FUZZ
@given(numbers=st.dictionaries(st.sampled_from([*FIELDS[CHAT][1:6], "temperature", "top_p", "n"]), NUMBERS))
def test_no_mix_of_numbers_makes_the_server_fail(client, numbers):
    response = client.post(CHAT, json={"messages": MESSAGES, "max_tokens": 2, "logprobs": True, **numbers})
    assert response.status_code in (200, 400)


@FUZZ
@given(raw=st.binary(max_size=40))
def test_no_bytes_make_the_server_fail(client, raw):
    assert client.post(CHAT, content=raw).status_code == 400
