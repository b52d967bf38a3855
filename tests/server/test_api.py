"""What a client may ask for besides text: log-probabilities, penalties, lengths, echo, tokens. And OpenAI's client."""

from __future__ import annotations

import json
import math

import httpx
import openai
import pytest

from llmlesson import Sampling

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "a1 b"}]
BODY = {"messages": MESSAGES, "max_tokens": 12, "ignore_eos": True, "temperature": 1, "seed": 3}


def ask(client, path, **body):
    return client.post(path, json=body).raise_for_status().json()


def streamed(client, path, **body):
    """All choices of all chunks."""
    content = client.post(path, json={**body, "stream": True}).raise_for_status().content
    events = [json.loads(part.removeprefix(b"data: ")) for part in content.split(b"\n\n")[:-2]]
    return [choice for event in events for choice in event["choices"]]


@pytest.fixture
def official(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


def test_log_probabilities_are_the_engines(client, engine):
    [choice] = ask(client, CHAT, **BODY, logprobs=True, top_logprobs=4)["choices"]
    content = choice["logprobs"]["content"]
    request = engine.request(MESSAGES, 12, Sampling(1.0, top_p=1.0, seed=3), ignore_eos=True)
    cache, unread = engine.new_cache(128), request.ids
    for entry in content:
        scores = engine.read(unread, cache)
        step = request.take(scores)
        unread = [step.token_id]
        every = scores.log_softmax(dim=0)
        assert entry["logprob"] == pytest.approx(float(every[step.token_id]), abs=1e-3)
        best = every.topk(4).values.tolist()
        assert [other["logprob"] for other in entry["top_logprobs"]] == pytest.approx(best, abs=1e-3)
        assert bytes(entry["bytes"]) == engine.tokenizer.token_bytes(step.token_id)
    assert len(content) == 12


def test_the_bytes_of_all_tokens_join_to_the_text_streamed_or_not(client):
    """Without top_logprobs there are none; tokens that add no text are listed with the next that does."""
    body = {**BODY, "logprobs": True, "max_tokens": 40}
    [whole] = ask(client, CHAT, **body)["choices"]
    entries = whole["logprobs"]["content"]
    raw = b"".join(bytes(entry["bytes"]) for entry in entries)
    text = whole["message"]["content"]
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # control tokens have bytes and no text
    for name in names:
        raw = raw.replace(name.encode(), b"")
    assert raw.decode("utf-8", "replace") == text
    assert all(entry["top_logprobs"] == [] for entry in entries)
    parts = streamed(client, CHAT, **body)
    assert [entry for part in parts for entry in (part["logprobs"] or {}).get("content", [])] == entries
    assert "".join(part["delta"].get("content", "") for part in parts) == text


def test_half_characters_are_written_as_bytes(client, engine):
    ids = engine.tokenizer.encode("é")
    assert [engine.tokenizer.token_bytes(token) for token in ids] == [b"\xc3", b"\xa9"]
    entries = ask(client, CHAT, **{**BODY, "max_tokens": 60}, logprobs=True)["choices"][0]["logprobs"]["content"]
    halves = [entry for entry in entries if bytes(entry["bytes"])[:1] >= b"\x80"]
    assert halves
    assert all(entry["token"].startswith("bytes:\\x") for entry in halves if len(entry["bytes"]) == 1)


def test_completions_have_four_lists(client):
    body = {"prompt": "a1 b", "max_tokens": 10, "seed": 3, "ignore_eos": True}
    [choice] = ask(client, TEXT, **body, logprobs=2)["choices"]
    lists = choice["logprobs"]
    assert {name: len(values) for name, values in lists.items()} == {
        "tokens": 10, "token_logprobs": 10, "top_logprobs": 10, "text_offset": 10
    }  # fmt: skip
    for token, own, top in zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True):
        assert top[token] == own
        assert 2 <= len(top) <= 3
    assert lists["text_offset"] == sorted(lists["text_offset"])
    places = list(zip(["", *lists["tokens"]], lists["tokens"], lists["text_offset"], strict=False))
    whole = [(token, offset) for before, token, offset in places if not {"b", "<"} & {before[:1], token[:1]}]
    assert whole  # characters that aren't cut: a half one is in the text only once it is known to be broken
    assert all(choice["text"].startswith(token, offset) for token, offset in whole)
    assert ask(client, TEXT, **body)["choices"][0]["logprobs"] is None
    parts = streamed(client, TEXT, **body, logprobs=2)
    for name, values in lists.items():
        assert [value for part in parts for value in (part["logprobs"] or {}).get(name, [])] == values


def test_penalties_and_a_least_length(client, engine):
    greedy = {"messages": MESSAGES, "temperature": 0, "max_tokens": 12, "ignore_eos": True}
    got = ask(client, CHAT, **greedy, presence_penalty=1.5, frequency_penalty=0.5)
    sampling = Sampling(presence_penalty=1.5, frequency_penalty=0.5)
    request = engine.request(MESSAGES, 12, sampling, ignore_eos=True)
    cache, unread = engine.new_cache(128), request.ids
    while not request.finish_reason:
        unread = [request.take(engine.read(unread, cache)).token_id]
    assert got["choices"][0]["message"]["content"] == request.text
    assert request.text != ask(client, CHAT, **greedy)["choices"][0]["message"]["content"]


def test_no_end_before_the_least_length(client, engine, monkeypatch):
    monkeypatch.setattr(engine, "eos_token_ids", frozenset(range(130)))  # half of the vocabulary
    body = {"messages": MESSAGES, "max_tokens": 30, "n": 6, "seed": 1}
    assert ask(client, CHAT, **body)["usage"]["completion_tokens"] < 6 * 20
    assert ask(client, CHAT, **body, min_tokens=20)["usage"]["completion_tokens"] >= 6 * 20


@pytest.mark.parametrize("stream", [False, True])
def test_echo_puts_the_prompt_in_front(client, engine, stream):
    body = {"prompt": ["a1 b", "b"], "max_tokens": 3, "temperature": 0}
    plain = [choice["text"] for choice in ask(client, TEXT, **body)["choices"]]
    ids = [engine.prompt_ids(prompt, chat=False) for prompt in body["prompt"]]
    for prompt in (body["prompt"], ids):
        if stream:
            parts = streamed(client, TEXT, **{**body, "prompt": prompt}, echo=True)
            texts = ["".join(part["text"] for part in parts if part["index"] == index) for index in range(2)]
        else:
            texts = [choice["text"] for choice in ask(client, TEXT, **{**body, "prompt": prompt}, echo=True)["choices"]]
        assert texts == ["a1 b" + plain[0], "b" + plain[1]]
    refused = client.post(TEXT, json={**body, "echo": True, "logprobs": 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "echo")


def test_tokens_there_and_back(client, engine):
    text = "a1 b é<|im_end|>"
    body = ask(client, "/tokenize", prompt=text, return_token_strs=True)
    assert body["tokens"] == engine.prompt_ids(text, chat=False)
    assert (body["count"], body["max_model_len"]) == (len(body["tokens"]), 128)
    assert len(body["token_strs"]) == body["count"]
    assert ask(client, "/detokenize", tokens=body["tokens"]) == {"prompt": text}
    chat = ask(client, "/tokenize", messages=MESSAGES)
    assert (chat["tokens"], chat["token_strs"]) == (engine.prompt_ids(MESSAGES), None)
    assert chat["count"] == ask(client, CHAT, messages=MESSAGES, max_tokens=1)["usage"]["prompt_tokens"]
    assert ask(client, "/tokenize", prompt="a", add_special_tokens=False)["tokens"] == engine.tokenizer.encode("a")
    assert ask(client, "/tokenize", prompt="")["tokens"] == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages"),
        ("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False}, "add_generation_prompt"),
        ("/tokenize", {"model": "other", "prompt": "a"}, "model"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [2**70]}, "tokens"),
    ],
)
def test_wrong_calls_for_tokens_are_refused_by_name(client, path, body, param):
    response = client.post(path, json=body)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == param


def test_tokens_need_the_key_and_a_paced_server_has_none(paced):
    url = paced(api_key="secret").url
    assert httpx.post(f"{url}/tokenize", json={"prompt": "a b"}, trust_env=False).status_code == 401
    headers = {"Authorization": "Bearer secret"}
    body = httpx.post(f"{url}/tokenize", json={"prompt": "a b"}, headers=headers, trust_env=False).json()
    assert (body["count"], body["tokens"]) == (2, [0, 0])
    for path, wrong in (("/detokenize", {"tokens": [0]}), (CHAT, {"messages": MESSAGES, "logprobs": True})):
        assert httpx.post(url + path, json=wrong, headers=headers, trust_env=False).status_code == 400


def test_the_official_client_reads_logprobs_and_choices(official):
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 6, "seed": 2, "n": 2}
    whole = official.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in whole.choices] == [0, 1]
    for choice in whole.choices:
        for entry in choice.logprobs.content:
            assert -math.inf < entry.logprob <= 0
            assert len(entry.top_logprobs) == 2
    with official.chat.completions.stream(**options, logprobs=True, top_logprobs=2) as stream:
        for _ in stream:
            pass
        final = stream.current_completion_snapshot
    assert [c.message.content for c in final.choices] == [c.message.content for c in whole.choices]
    assert [c.logprobs.content for c in final.choices] == [c.logprobs.content for c in whole.choices]
    text = official.completions.create(model="tiny", prompt="a1 b", max_tokens=4, logprobs=1, echo=False)
    assert len(text.choices[0].logprobs.tokens) <= 4


def test_the_official_client_retries_only_what_may_go_better(paced):
    server = paced(0.05, queue=1)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=3)
    options = {"model": "paced", "messages": MESSAGES}
    with client.chat.completions.create(**options, max_tokens=10, stream=True) as stream:
        next(iter(stream))
        # 429 at first; a retry finds the place free.
        assert client.chat.completions.create(**options, max_tokens=1).choices[0].message.content == "This"
        tried = []
        client = client.with_options(http_client=httpx2_client(tried))
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(**options, temperature=9)
    assert len(tried) == 1


def httpx2_client(tried):
    return openai.DefaultHttpxClient(event_hooks={"request": [tried.append]})


def test_the_official_client_is_told_of_a_cut_stream(server, batch):
    count, step = iter(range(100)), batch.step

    def failing():
        if next(count) == 3:
            raise RuntimeError("out of luck")
        return step()

    batch.step = failing
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 30, "extra_body": {"ignore_eos": True}}
    stream = iter(client.chat.completions.create(**options, stream=True))
    assert next(stream).choices[0].delta.role == "assistant"
    with pytest.raises(openai.APIError, match="out of luck"):
        list(stream)
