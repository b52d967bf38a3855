"""The cache: what it holds, what it refuses, and that a refusal leaves it as it was."""

from __future__ import annotations

import pytest
import torch

from llmlesson import LessonError


@pytest.fixture
def engine(tiny_pair):
    return tiny_pair("gqa")[0]


def contents(cache):
    layers = range(cache.num_layers)
    return [cache.keys(i).clone() for i in layers] + [cache.values(i).clone() for i in layers]


def assert_unchanged(cache, length, before):
    assert cache.length == length
    for old, new in zip(before, contents(cache), strict=True):
        assert torch.equal(old, new)


def test_one_entry_for_each_prompt_token_then_one_for_each_step(engine, ids):
    cache, token = engine.prefill(ids(11))
    assert cache.length == 11
    assert cache.keys(0).shape == cache.values(2).shape == (2, 11, 10)  # [kv_heads, length, head_dim]
    for step in range(1, 4):
        cache, token = engine.decode(cache, token)
        assert cache.length == 11 + step
    assert isinstance(token, int)


def test_bytes_are_counted_from_kv_heads_and_not_from_query_heads(engine, ids):
    cache = engine.new_cache(40)
    per_token = 2 * 3 * 2 * 10 * 4  # K and V, layers, kv_heads, head_dim, bytes of a float32
    assert cache.nbytes == 0
    assert cache.allocated_nbytes == 40 * per_token
    engine.prefill(ids(7), cache)
    assert cache.nbytes == 7 * per_token
    assert cache.nbytes == sum(t.numel() * t.element_size() for t in contents(cache))


def test_a_decode_step_reads_exactly_one_token(engine, ids, monkeypatch):
    seen = []
    forward = engine.model.forward
    monkeypatch.setattr(engine.model, "forward", lambda ids, *rest: seen.append(ids.shape[1]) or forward(ids, *rest))
    cache, token = engine.prefill(ids(9))
    engine.decode(cache, token)
    assert seen == [9, 1]


def test_prefill_computes_one_row_of_logits(engine, ids, monkeypatch):
    shapes = []
    logits = engine.model.logits
    monkeypatch.setattr(engine.model, "logits", lambda x: shapes.append(x.shape) or logits(x))
    engine.prefill(ids(9))
    assert shapes == [(60,)]


def test_truncate_and_continue_gives_the_same_as_never_having_gone_on(engine, ids):
    start, detour, onward = ids(9), ids(5), ids(6)
    cache, _ = engine.prefill(start)
    expected = engine.logits(onward, cache.clone())
    engine.prefill(detour, cache)
    cache.truncate(9)
    assert torch.equal(engine.logits(onward, cache), expected)


def test_a_clone_is_independent(engine, ids):
    cache, token = engine.prefill(ids(9))
    before = contents(cache)
    copy = cache.clone()
    engine.decode(copy, token)
    assert_unchanged(cache, 9, before)
    assert copy.length == 10


def test_what_is_refused_changes_nothing(engine, tiny_pair, ids):
    cache = engine.new_cache(10)
    engine.prefill(ids(8), cache)
    before = contents(cache)
    for call, message in [
        (lambda: engine.prefill([], cache), "at least one token"),
        (lambda: engine.prefill("a text", cache), r"tokenizer\.chat"),
        (lambda: engine.prefill([[1], [2, 3]], cache), "list of token ids"),
        (lambda: engine.prefill([5, 131], cache), "id 131: ids run from 0 to 130"),
        (lambda: engine.prefill([-1], cache), "id -1"),
        (lambda: engine.prefill([0.5], cache), "whole numbers"),
        (lambda: engine.prefill([[1, 2], [3, 4]], cache), "shape"),
        (lambda: engine.prefill(ids(3), cache), "8 of 10 positions"),
        (lambda: engine.logits(ids(3), cache), "8 of 10 positions"),
        (lambda: engine.decode(cache, 131), "id 131"),
        (lambda: tiny_pair("mha")[0].decode(cache, 5), "another engine"),
        (lambda: cache.truncate(9), "holds 8"),
        (lambda: cache.truncate(-1), "holds 8"),
    ]:
        with pytest.raises(LessonError, match=message):
            call()
        assert_unchanged(cache, 8, before)


def test_decode_on_a_full_cache_names_the_way_out(engine, ids):
    cache = engine.new_cache(4)
    cache, token = engine.prefill(ids(4), cache)
    before = contents(cache)
    with pytest.raises(LessonError, match=r"full.*new_cache"):
        engine.decode(cache, token)
    assert_unchanged(cache, 4, before)


def test_longer_than_the_context_is_refused(engine, ids):
    with pytest.raises(LessonError, match=r"300 tokens.*at most 256"):
        engine.prefill(ids(300))
    with pytest.raises(LessonError, match="1 to 256"):
        engine.new_cache(257)
    with pytest.raises(LessonError, match="at least 1, but it is 0"):
        engine.new_cache(0)


def test_a_forward_pass_that_fails_midway_leaves_the_cache(engine, ids, monkeypatch):
    cache, token = engine.prefill(ids(6))
    before = contents(cache)
    last = engine.model.layers[-1]
    monkeypatch.setattr(last, "down", torch.zeros(3, 3))
    with pytest.raises(RuntimeError):
        engine.decode(cache, token)
    assert_unchanged(cache, 6, before)


def test_chunks_that_do_not_fit_or_fail_leave_nothing_behind(engine, ids, monkeypatch):
    cache, _ = engine.prefill(ids(6), engine.new_cache(20))
    before = contents(cache)
    with pytest.raises(LessonError, match="6 of 20"):
        engine.prefill(ids(15), cache, chunk=4)
    assert_unchanged(cache, 6, before)
    with pytest.raises(LessonError, match="chunk must be at least 1"):
        engine.prefill(ids(5), cache, chunk=0)
    forward, calls = engine.model.forward, []

    def fail_at_the_third(ids, cache):
        calls.append(ids)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return forward(ids, cache)

    monkeypatch.setattr(engine.model, "forward", fail_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        engine.prefill(ids(10), cache, chunk=4)
    assert_unchanged(cache, 6, before)


def test_prefill_leaves_room_within_the_context(engine, ids):
    assert engine.prefill(ids(250))[0].max_tokens == 256
