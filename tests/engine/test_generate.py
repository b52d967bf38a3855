"""Streaming and stopping."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlesson import LessonError, Sampling
from llmlesson.engine.cuda_graph import tokens_read_behind
from llmlesson.engine.stopping import StopStrings


@pytest.fixture
def engine(tiny_pair):
    return tiny_pair("gqa")[0]


def test_stream_is_the_loop_by_hand(engine, ids):
    prompt = ids(10)
    steps = list(engine.stream(prompt, max_new_tokens=20))
    cache, token = engine.prefill(prompt)
    by_hand = [token]
    while len(by_hand) < 20 and token not in engine.eos_token_ids:
        cache, token = engine.decode(cache, token)
        by_hand.append(token)
    assert [step.token_id for step in steps] == by_hand
    assert [step.index for step in steps] == list(range(len(by_hand)))
    assert [step.cache_length for step in steps] == list(range(10, 10 + len(by_hand)))
    assert all(step.finish_reason is None for step in steps[:-1])


def test_why_it_stopped(engine, ids, monkeypatch):
    prompt = ids(10)
    free = engine.generate(prompt, max_new_tokens=6)
    assert (free.finish_reason, len(free.token_ids)) == ("length", 6)
    end = free.token_ids[3]
    monkeypatch.setattr(engine, "eos_token_ids", frozenset({end}))
    stopped = engine.generate(prompt, max_new_tokens=6)
    assert stopped.finish_reason == "eos"
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(end) + 1]
    monkeypatch.undo()
    small = engine.generate(prompt, max_new_tokens=6, cache=engine.new_cache(12))
    assert (small.finish_reason, small.token_ids) == ("cache_full", free.token_ids[:3])


def test_the_context_ends_an_answer(engine, ids):
    answer = engine.generate(ids(250), max_new_tokens=100)
    assert (answer.finish_reason, len(answer.token_ids), answer.cache.length) == ("cache_full", 7, 256)


def test_the_last_token_needs_no_room(engine, ids):
    answer = engine.generate(ids(10), max_new_tokens=5)
    assert answer.cache.max_tokens == answer.cache.length == 14


def test_stopping_early_leaves_the_engine_usable(engine, ids):
    prompt = ids(10)
    expected = engine.generate(prompt, max_new_tokens=8).token_ids
    for step in engine.stream(prompt, max_new_tokens=8):
        if step.index == 2:
            break
    stream = engine.stream(prompt, max_new_tokens=8)
    next(stream)
    stream.close()
    assert engine.generate(prompt, max_new_tokens=8).token_ids == expected


def test_a_conversation_continues_on_its_cache(real):
    first = real.generate("Name a colour.", max_new_tokens=5)
    longer = real.new_cache(200)
    ids = first.prompt_ids + first.token_ids
    real.prefill(first.prompt_ids, longer)
    continued = real.generate(first.token_ids, max_new_tokens=5, cache=longer)
    assert continued.token_ids == real.generate(ids, max_new_tokens=5).token_ids


def test_wrong_input_is_refused_before_the_first_step(engine):
    for call, message in [
        (lambda: engine.stream([], 5), "at least one"),
        (lambda: engine.stream([1, 999], 5), "id 999"),
        (lambda: engine.stream([1], 0), "max_new_tokens"),
        (lambda: engine.stream("text"), "no tokenizer.json"),
        (lambda: engine.stream([1] * 20, cache=engine.new_cache(10)), "0 of 10"),
    ]:
        with pytest.raises(LessonError, match=message):
            call()


@given(st.lists(st.text("abc", max_size=3), max_size=12), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_stop_strings_never_leak_and_never_lose(pieces, stops):
    scanner, shown, stopped = StopStrings(stops), "", False
    for piece in pieces:
        text, stopped = scanner.push(piece)
        shown += text
        if stopped:
            break
    shown += "" if stopped else scanner.flush()
    whole = "".join(pieces)
    ends = [whole.find(stop) for stop in stops if stop in whole]
    assert stopped == bool(ends)
    if not ends:
        assert shown == whole
    else:
        # A stop string that another one begins is met first in the stream, though it may begin later in the text.
        assert whole.startswith(shown)
        assert any(whole.startswith(stop, len(shown)) for stop in stops)
        assert not any(stop in shown for stop in stops)


def test_a_stop_string_over_several_tokens_ends_the_answer(real):
    prompt = "Explain quantum computing like I'm ten."
    steps = list(real.stream(prompt, max_new_tokens=40, stop=["computing assist", "never said"]))
    assert steps[-1].finish_reason == "stop"
    assert "".join(step.text for step in steps) == "In the realm of computing, I'm a quantum "
    # The end was held back and came to nothing.
    free = list(real.stream(prompt, max_new_tokens=40, stop="computing assistance"))
    assert "".join(step.text for step in free) == real.generate(prompt, max_new_tokens=40).text
    assert free[-1].finish_reason == "length"


@pytest.mark.parametrize(("stop", "shown", "reason"), [("end", "the ", "stop"), ("ending", "the end", "length")])
def test_text_that_comes_only_at_the_end_can_complete_a_stop_string(engine, ids, monkeypatch, stop, shown, reason):
    """As when the answer breaks off within a character: what was held back of it is given at the end."""

    pieces = iter(["the ", "e"])
    text_stream = SimpleNamespace(push=lambda token: next(pieces), flush=lambda: "nd")
    monkeypatch.setattr(engine, "_tokenizer", SimpleNamespace(stream=lambda: text_stream, control_names={}))
    steps = list(engine.stream(ids(5), max_new_tokens=2, stop=stop))
    assert "".join(step.text for step in steps) == shown
    assert steps[-1].finish_reason == reason


@pytest.mark.parametrize("stop", ["", ["ok", ""], [3]])
def test_senseless_stop_strings_are_refused(engine, stop):
    with pytest.raises(LessonError, match="stop string"):
        engine.stream([1], stop=stop)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.2, seed=5), Sampling(1.2, seed=5, repetition_penalty=1.2)])
def test_reading_tokens_one_step_behind_changes_nothing(engine, ids, sampling):
    """The loop of the CUDA path, here on the CPU: the same tokens, and the cache length of each."""
    prompt = ids(10)
    expected = [(step.token_id, step.cache_length) for step in engine.stream(prompt, 20, sampling)]
    cache = engine.new_cache(29)
    request = engine.request(prompt, 20, sampling)
    tokens = tokens_read_behind(engine.model, cache, request, lambda: engine.read(prompt, cache))
    got = [(request.accept(token).token_id, cache.length) for _, (token, _) in zip(expected, tokens, strict=False)]
    assert got == expected
    tokens.close()
    assert cache.length == expected[-1][1]


def test_stopping_while_a_step_is_ahead_takes_it_back(engine, ids):
    prompt = ids(10)
    cache = engine.new_cache(40)
    tokens = tokens_read_behind(engine.model, cache, engine.request(prompt), lambda: engine.read(prompt, cache))
    token, _ = next(tokens)
    tokens.close()
    assert cache.length == 10
    assert engine.decode(cache, token)[1] == engine.generate(prompt, max_new_tokens=2).token_ids[1]


def test_a_model_without_tokenizer_streams_ids(engine, ids):
    assert {step.text for step in engine.stream(ids(5), max_new_tokens=3)} == {""}
