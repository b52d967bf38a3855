"""Streaming and stopping."""

from __future__ import annotations

import pytest

from llmlesson import LessonError


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


def test_a_model_without_tokenizer_streams_ids(engine, ids):
    assert {step.text for step in engine.stream(ids(5), max_new_tokens=3)} == {""}
