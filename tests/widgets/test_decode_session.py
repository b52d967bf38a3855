"""DecodeSession: every step as the engine makes it, back and again bit for bit, branches; no widget."""

from __future__ import annotations

import pytest
import torch

from llmlesson import LessonError, Sampling
from llmlesson.measure import cost
from llmlesson.widgets import decode_session
from llmlesson.widgets.decode_session import DecodeSession

WARM = Sampling(temperature=0.9, top_k=40, top_p=0.95, seed=decode_session.SEED)


@pytest.fixture
def session(tiny_engine):
    return DecodeSession(tiny_engine, "a1 b", chat=False)


def steps(session, count):
    for _ in range(count):
        session.step()


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "sampled"])
def test_the_steps_are_those_of_generate(real, sampling):
    prompt = "Name three fruits."
    session = DecodeSession(real, prompt)
    session.sampling = sampling
    session.reset()
    while not session.finish_reason and len(session.tokens) < 12:
        session.step()
    assert session.tokens == real.generate(prompt, max_new_tokens=12, sampling=sampling).token_ids


def test_back_and_again_is_the_same_bit_for_bit(real, bits):
    session = DecodeSession(real, "Name three fruits.")
    session.sampling = WARM
    session.reset()
    steps(session, 4)
    tokens, logits, cache = session.tokens, session.node.logits, bits(session.cache)
    for _ in range(3):
        session.back()
    assert torch.equal(bits(session.cache), cache[:, :, :, : session.cache.length])
    for _ in range(3):
        session.step()
        assert session.bit_equal is True
    assert session.tokens == tokens
    assert torch.equal(session.node.logits, logits)
    assert torch.equal(bits(session.cache), cache)
    assert len(session.branches) == 1


def test_a_step_adds_one_position_and_back_takes_it_away(session):
    prompt = session.cache.length
    assert prompt == len(session.prompt_ids)
    for step in range(1, 4):
        before = session.cache.nbytes
        session.step()
        assert session.cache.length == prompt + step
        assert len(session.tokens) == 1 + step
        assert session.cache.nbytes - before == session.node.costs[0].kv_written_bytes
    session.back()
    assert session.cache.length == prompt + 2
    assert len(session.tokens) == 3


def test_the_work_is_counted_as_cost_counts_it(session):
    length, config = session.cache.length, session.engine.config
    assert session.node.costs == (cost.prefill(config, length),)
    session.step()
    assert session.node.costs == (cost.decode(config, length),)


def test_taking_another_token_keeps_the_answer_that_was_there(session, bits):
    steps(session, 3)
    original, shared = session.tokens, bits(session.cache)
    session.back()
    other = (session.node.token + 1) % 200 + 3
    session.take(other)
    assert [branch.name for branch in session.branches] == ["A", "B"]
    assert (session.current, session.branch.forked_at) == (1, 2)
    assert session.tokens == [*original[:2], other]
    assert session.branches[0].tokens == original
    steps(session, 2)
    assert session.tokens[:3] == [*original[:2], other]
    # The first branch goes on where it was left, its own K and V untouched by the second.
    session.switch(0)
    session.step()
    assert session.tokens == original
    assert session.bit_equal is True
    assert torch.equal(bits(session.cache), shared)


def test_a_branch_holds_what_a_fresh_request_would(session, tiny_engine):
    """K and V of a branch against a prefill of the same tokens."""
    steps(session, 2)
    session.take((session.node.token + 1) % 200 + 3)
    steps(session, 2)
    ids = [*session.prompt_ids, *session.tokens[:-1]]
    fresh, _ = tiny_engine.prefill(ids)
    assert session.cache.length == fresh.length == len(ids)
    for layer in range(fresh.num_layers):
        torch.testing.assert_close(session.cache.keys(layer), fresh.keys(layer), atol=1e-3, rtol=0)
        torch.testing.assert_close(session.cache.values(layer), fresh.values(layer), atol=1e-3, rtol=0)


def test_a_branch_that_is_there_is_not_made_twice(session):
    steps(session, 2)
    chosen, other = session.node.token, (session.node.token + 1) % 200 + 3
    session.take(chosen)
    assert len(session.branches) == 1, "the token that was taken already"
    session.take(other)
    session.take(chosen)
    assert (len(session.branches), session.current) == (2, 0)
    session.take(other)
    assert (len(session.branches), session.current) == (2, 1)


def test_a_token_taken_by_hand_is_taken_again_after_back(session):
    steps(session, 1)
    other = (session.node.token + 1) % 200 + 3
    session.take(other)
    session.step()
    tokens = session.tokens
    session.back()
    session.back()
    steps(session, 2)
    assert session.tokens == tokens
    assert (len(session.branches), session.current) == (2, 1)


def test_other_sampling_after_back_is_another_branch(session):
    steps(session, 6)
    greedy = session.tokens
    for _ in range(6):
        session.back()
    session.sampling = Sampling(temperature=50.0)
    while len(session.branches) == 1:
        session.step()
    fork = session.branch.forked_at
    assert session.tokens[:fork] == greedy[:fork]
    assert session.tokens[fork] != greedy[fork]
    assert session.branches[0].tokens == greedy
    for branch in session.branches:
        assert branch.cache.length == len(session.prompt_ids) + branch.at


def test_reset_forgets_all_but_the_prompt(session):
    first, length = session.tokens, session.cache.length
    steps(session, 2)
    session.take(5)
    session.step()
    session.reset()
    assert (session.tokens, session.cache.length, len(session.branches)) == (first, length, 1)


@pytest.mark.parametrize("reason", ["eos", "length", "cache_full"])
def test_why_it_ends(session, reason, monkeypatch):
    if reason == "eos":
        session.take(next(iter(session.engine.eos_token_ids)))
    elif reason == "length":
        monkeypatch.setattr(decode_session, "MOST_TOKENS", 3)
        session = DecodeSession(session.engine, session.prompt, chat=False)
        steps(session, 2)
    else:
        context = session.engine.config.max_position_embeddings
        session = DecodeSession(session.engine, [5] * (context - 1))
        session.step()
    assert session.finish_reason == reason
    before = session.cache.length, session.tokens
    with pytest.raises(LessonError, match=r"There is no next step: .* Go back, take another token, or reset"):
        session.step()
    assert (session.cache.length, session.tokens) == before


def test_the_whole_context_can_be_filled(tiny_engine):
    context = tiny_engine.config.max_position_embeddings
    session = DecodeSession(tiny_engine, [5] * context)
    assert (session.cache.length, session.finish_reason) == (context, "cache_full")


def test_what_is_refused_changes_nothing(session):
    with pytest.raises(LessonError, match="only the prompt has been read"):
        session.back()
    with pytest.raises(LessonError, match="no token with the id -1"):
        session.take(-1)
    with pytest.raises(LessonError, match="There are 1 branches, but no number 2"):
        session.switch(1)
    for prompt, message in [([], "empty"), ([5] * 129, "129 tokens"), ([10**6], "no token with the id")]:
        with pytest.raises(LessonError, match=message):
            DecodeSession(session.engine, prompt)
    assert len(session.tokens) == 1


@pytest.mark.parametrize("part", ["step", "choose"])
def test_a_step_that_fails_leaves_everything_as_it_was(session, part, monkeypatch, bits):
    steps(session, 2)
    session.back()
    before = bits(session.cache), session.tokens, session.branch.tokens

    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(session, "_branch_off" if part == "step" else "_choose", fail)
    # Another token than the one that comes out, so that the step leaves this branch.
    session.branch.nodes[2:] = [session._by_hand(session.branch.nodes[2], session.node.request, 7)]
    session.branch.nodes[2] = decode_session.replace(session.branch.nodes[2], by_hand=False)
    with pytest.raises(MemoryError):
        session.step()
    assert torch.equal(bits(session.cache), before[0])
    assert session.tokens == before[1]


def test_a_long_prompt_is_read_in_chunks_told_and_stopped(tiny_engine, monkeypatch):
    monkeypatch.setattr(decode_session, "CHUNK", 16)
    told = []
    session = DecodeSession(tiny_engine, [5, 6] * 20, progress=lambda *done: told.append(done) or True)
    assert told == [(0, 40), (16, 40), (32, 40)]
    assert [c.tokens for c in session.node.costs] == [16, 16, 8]
    whole, token = tiny_engine.prefill([5, 6] * 20)
    assert (session.tokens, session.cache.length) == ([token], 40)
    torch.testing.assert_close(session.cache.keys(1), whole.keys(1), atol=1e-3, rtol=0)
    with pytest.raises(LessonError, match="Stopped after 16 of the prompt's 40 tokens"):
        DecodeSession(tiny_engine, [5, 6] * 20, progress=lambda done, total: done < 16)
