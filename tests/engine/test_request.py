"""A request alone: which token, which text, is it over and why. No model runs here."""

from __future__ import annotations

import pytest
import torch

from llmlesson import LessonError, Sampling
from llmlesson.engine import Request

WARM = Sampling(temperature=1.0, seed=7)


def scores(token, size=20):
    return torch.nn.functional.one_hot(torch.tensor(token), size).float() * 50


def test_it_takes_the_best_token_until_it_ends():
    request = Request([1, 2], max_new_tokens=3)
    steps = [request.take(scores(token)) for token in (5, 6, 7)]
    assert [(step.index, step.token_id, step.finish_reason) for step in steps] == [
        (0, 5, None),
        (1, 6, None),
        (2, 7, "length"),
    ]
    assert (request.tokens, request.token_ids, request.finish_reason) == ([1, 2, 5, 6, 7], [5, 6, 7], "length")
    with pytest.raises(LessonError, match=r"has ended \(length\)"):
        request.take(scores(8))
    assert request.token_ids == [5, 6, 7]


def test_an_end_token_goes_before_length_and_length_before_a_full_cache():
    assert Request([1], max_new_tokens=1, room=1, eos_token_ids=frozenset({5})).take(scores(5)).finish_reason == "eos"
    assert Request([1], max_new_tokens=1, room=1).take(scores(5)).finish_reason == "length"
    assert Request([1], max_new_tokens=2, room=1).take(scores(5)).finish_reason == "cache_full"


@pytest.mark.parametrize(("prompt", "room", "tokens"), [(3, 3, 1), (3, 4, 2), (1, 5, 5)])
def test_the_last_token_needs_no_room(prompt, room, tokens):
    request = Request(range(prompt), room=room)
    while not request.finish_reason:
        request.take(scores(5))
    assert (len(request.token_ids), request.finish_reason) == (tokens, "cache_full")


def test_a_fork_draws_what_the_original_would():
    request = Request([1], WARM)
    flat = torch.zeros(1000)
    request.take(flat)
    fork = request.fork()
    ahead = [request.take(flat).token_id for _ in range(5)]
    assert [fork.take(flat).token_id for _ in range(5)] == ahead
    assert fork.token_ids == request.token_ids
    fork.take(flat)
    assert len(fork.token_ids) == len(request.token_ids) + 1


def test_a_fork_with_other_sampling_keeps_the_original():
    request = Request([1], WARM)
    assert request.fork(Sampling()).take(scores(5)).token_id == 5
    assert request.token_ids == []


def test_a_penalty_sees_prompt_and_answer_once():
    request = Request([3], Sampling(repetition_penalty=2.0))
    assert request.needs_history
    logits = torch.tensor([1.0, 1.2, 1.3, 2.2])
    assert [request.take(logits).token_id for _ in range(3)] == [2, 1, 3]


def test_text_and_stop_strings_of_a_fork_are_its_own(real):
    ids = real.tokenizer.encode("one two three four")
    request = real.request("Count.", stop="three")
    for token in ids[:2]:
        request.accept(token)
    fork = request.fork()
    assert [request.accept(token).finish_reason for token in ids[2:3]] == ["stop"]
    fork.accept(real.tokenizer.encode(" cats")[0])
    assert (request.text, fork.text) == ("one two ", "one two cats")
    assert fork.finish_reason is None


@pytest.mark.parametrize("stop", ["<|im_start|>", "<|im_start|>user", "two<|im_start|>us", ["zzz", "m_start|>u"]])
def test_a_control_token_can_be_part_of_a_stop_string(real, stop):
    ids = real.tokenizer.encode("one two<|im_start|>user three", special=True)
    request = real.request("Count.", stop=stop)
    for token in ids:
        if request.accept(token).finish_reason:
            break
    assert request.finish_reason == "stop"
    assert request.text == ("one " if str(stop).startswith("two") else "one two")


def test_a_control_token_that_is_no_stop_string_shows_nothing(real):
    ids = real.tokenizer.encode("one two<|im_start|>user three", special=True)
    request = real.request("Count.", stop="<|im_start|>system", max_new_tokens=len(ids))
    text = "".join(request.accept(token).text for token in ids)
    assert text == request.text == real.tokenizer.decode(ids) == "one twouser three"


def test_stop_before_end_of_sequence(real):
    end = next(iter(real.eos_token_ids))
    request = real.request("Count.", stop=real.tokenizer.control_names[end])
    request.accept(real.tokenizer.encode("one")[0])
    assert request.accept(end).finish_reason == "stop"
    assert request.text == "one"


@pytest.mark.parametrize("stop", [5, "", ["a", ""], [5], b"x", {"a": 1}.values()])
def test_wrong_stop_strings_are_refused_at_once(stop):
    with pytest.raises(LessonError, match="at least one character"):
        Request([1], stop=stop)


def test_logprobs_are_of_the_models_own_scores_best_first_and_then_the_chosen():
    logits = torch.tensor([1.0, 4.0, 2.0, 3.0])
    expected = logits.double().log_softmax(dim=0).tolist()
    request = Request([1], Sampling(0.5, frequency_penalty=1.5, top_k=1), logprobs=2)
    assert request.needs_history
    for chosen, ids in ((1, [1, 3]), (3, [1, 3]), (1, [1, 3]), (2, [1, 3, 2])):
        step = request.take(logits)
        assert (step.token_id, list(step.logprobs)) == (chosen, ids)
        assert list(step.logprobs.values()) == pytest.approx([expected[token] for token in ids], abs=1e-6)
    assert list(Request([1], logprobs=0).take(logits).logprobs) == [1]
    assert list(Request([1], logprobs=99).take(logits).logprobs) == [1, 3, 2, 0]
    assert Request([1]).take(logits).logprobs is None


def test_an_end_token_waits_for_the_least_length():
    request = Request([1], eos_token_ids=frozenset({5, 6}), min_new_tokens=2)
    assert request.needs_history
    logits = torch.tensor([0.0, 0, 0, 1, 0, 9, 8])
    assert [request.take(logits).token_id for _ in range(3)] == [3, 3, 5]
    assert not request.needs_history
    with pytest.raises(LessonError, match="min_new_tokens must be at most 3"):
        Request([1], max_new_tokens=3, min_new_tokens=4)


def test_streamed_logprobs_are_those_of_the_whole_text(tiny_pair, ids):
    engine, _ = tiny_pair("gqa")
    prompt = ids(9)
    steps = list(engine.stream(prompt, 6, logprobs=3))
    text = [*prompt, *(step.token_id for step in steps)]
    every = engine.logits(text).log_softmax(dim=-1)
    for place, step in enumerate(steps, start=len(prompt) - 1):
        best = every[place].topk(3)
        assert list(step.logprobs) == best.indices.tolist()
        assert list(step.logprobs.values()) == pytest.approx(best.values.tolist(), abs=1e-4)
