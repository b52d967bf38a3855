"""Speculative decoding gives what plain decoding gives, whatever the guesses are: tokens, text, reasons, cache."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import llmlesson
from llmlesson import LessonError, Sampling
from llmlesson.engine import DraftModel, PromptLookup, Speculation, speculative

PROMPTS = [[5, 9, 5, 9, 5, 9, 5], [7], list(range(3, 40)), [11, 12, 13, 11, 12, 13, 11, 12]]
SAMPLINGS = [
    None,
    Sampling(temperature=1.0, seed=3),
    Sampling(temperature=0.7, top_k=20, top_p=0.9, repetition_penalty=1.3, seed=4),
    Sampling(repetition_penalty=1.5),
]


class Oracle:
    """Knows the answer, and is wrong at every `wrong`-th token."""

    def __init__(self, prompt, answer, wrong=None):
        self.known, self.start, self.wrong = prompt + answer, len(prompt), wrong

    def guess(self, tokens, most):
        at = len(tokens)
        right = self.known[at : at + most]
        return [
            (token + 1) % 131 if self.wrong and (at + i - self.start) % self.wrong == 0 else token
            for i, token in enumerate(right)
        ]


class Random:
    def __init__(self):
        self.draw = random.Random(0)

    def guess(self, tokens, most):
        return [self.draw.randrange(131) for _ in range(self.draw.randint(0, most))]


def always(drafter, most=5):
    """Guesses from the first pass on, and never rests."""
    speculation = Speculation(drafter, most)
    speculation._plain.extend([1e9] * speculative.PLAIN)
    return speculation


@pytest.fixture(scope="module")
def engine(tiny_pair):
    return tiny_pair("gqa")[0]


def drafters(engine, prompt, answer):
    return {
        "right": Oracle(prompt, answer),
        "wrong": Oracle(prompt, answer, wrong=1),
        "now and then": Oracle(prompt, answer, wrong=3),
        "random": Random(),
        "lookup": PromptLookup(2, 1),
        "itself": DraftModel(engine),
    }


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_answer_is_that_of_plain_decoding(engine, prompt, sampling):
    plain = engine.generate(prompt, max_new_tokens=24, sampling=sampling)
    steps = list(engine.stream(prompt, max_new_tokens=24, sampling=sampling))
    for name, drafter in drafters(engine, prompt, plain.token_ids).items():
        got = engine.generate(prompt, max_new_tokens=24, sampling=sampling, speculation=always(drafter))
        assert (got.token_ids, got.finish_reason) == (plain.token_ids, plain.finish_reason), name
        assert got.cache.length == plain.cache.length
        for layer in range(engine.config.num_hidden_layers):
            torch.testing.assert_close(got.cache.keys(layer), plain.cache.keys(layer))
            torch.testing.assert_close(got.cache.values(layer), plain.cache.values(layer))
        seen = engine.stream(prompt, max_new_tokens=24, sampling=sampling, speculation=always(drafter))
        assert [(s.index, s.token_id, s.finish_reason, s.cache_length, s.cache_nbytes) for s in seen] == [
            (s.index, s.token_id, s.finish_reason, s.cache_length, s.cache_nbytes) for s in steps
        ]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_right_guesses_save_passes(engine, most):
    prompt, tokens = [7, 8, 9], 25
    answer = engine.generate(prompt, max_new_tokens=tokens).token_ids
    speculation = always(Oracle(prompt, answer), most)
    engine.generate(prompt, max_new_tokens=tokens, speculation=speculation)
    assert speculation.passes == -(-(tokens - 1) // (most + 1))
    assert speculation.tokens == tokens - 1
    assert speculation.kept == speculation.guessed == speculation.tokens - speculation.passes
    wrong = always(Oracle(prompt, answer, wrong=1), most)
    engine.generate(prompt, max_new_tokens=tokens, speculation=wrong)
    assert (wrong.passes, wrong.kept) == (tokens - 1, 0)


def test_nothing_comes_after_the_end_of_sequence_though_guesses_go_on(engine, monkeypatch):
    prompt = [7, 8, 9]
    answer = engine.generate(prompt, max_new_tokens=20).token_ids
    end = next(i for i in range(4, 20) if answer[i] not in answer[:i])
    monkeypatch.setattr(engine, "eos_token_ids", frozenset({answer[end]}))
    got = engine.generate(prompt, max_new_tokens=20, speculation=always(Oracle(prompt, answer), most=19))
    assert got.token_ids == answer[: end + 1]
    assert got.finish_reason == "eos"
    assert got.cache.length == len(prompt) + end  # the last token is not read


@pytest.mark.parametrize("room", [4, 5, 8, 12])
def test_a_full_cache_ends_it_where_it_ends_plain_decoding(engine, room):
    prompt = [7, 8, 9]
    answer = engine.generate(prompt, max_new_tokens=30).token_ids
    plain, got = (
        engine.generate(prompt, max_new_tokens=30, cache=engine.new_cache(room), speculation=speculation)
        for speculation in (None, always(Oracle(prompt, answer), most=29))
    )
    assert (got.token_ids, got.finish_reason) == (plain.token_ids, "cache_full")
    assert got.cache.length == plain.cache.length


@pytest.mark.parametrize("stop_after", range(1, 9))
def test_a_caller_who_leaves_has_the_cache_of_plain_decoding(engine, stop_after):
    prompt = [7, 8, 9]
    answer = engine.generate(prompt, max_new_tokens=30).token_ids
    caches = []
    for speculation in (None, always(Oracle(prompt, answer, wrong=4))):
        cache = engine.new_cache(60)
        stream = engine.stream(prompt, max_new_tokens=30, cache=cache, speculation=speculation)
        list(itertools.islice(stream, stop_after))
        stream.close()
        caches.append(cache)
    plain, got = caches
    assert got.length == plain.length
    torch.testing.assert_close(got.keys(2), plain.keys(2))
    assert engine.decode(got, 50)[1] == engine.decode(plain, 50)[1]


@pytest.mark.parametrize("at", range(1, 8))
def test_a_caller_who_cuts_the_cache_is_obeyed(engine, at):
    prompt = list(range(3, 20))
    answer = engine.generate(prompt, max_new_tokens=12).token_ids

    def cut(speculation):
        cache = engine.new_cache(60)
        for step in engine.stream(prompt, max_new_tokens=12, cache=cache, speculation=speculation):
            if step.index == at:
                cache.truncate(6)
            yield step.token_id, step.finish_reason, cache.length

    assert list(cut(always(Oracle(prompt, answer)))) == list(cut(None))


def test_guessing_stops_where_it_takes_longer_and_is_tried_again(engine, monkeypatch):
    """A clock by which each row of a pass takes a second: then guesses that are wrong only cost."""
    prompt = [7, 8, 9]
    now = [0.0]
    real = engine.logits

    def logits(ids, cache):
        now[0] += len(ids)
        return real(ids, cache)

    monkeypatch.setattr(engine, "logits", logits)
    monkeypatch.setattr(speculative.time, "perf_counter", lambda: now[0])
    answer = engine.generate(prompt, max_new_tokens=200).token_ids
    losing = Speculation(Oracle(prompt, answer, wrong=2))
    got = engine.generate(prompt, max_new_tokens=200, speculation=losing)
    assert got.token_ids == answer
    assert losing.rests >= 2
    assert losing.guessed < 5 * speculative.WINDOW * (losing.rests + 1)
    assert "stopped guessing for a while" in losing.report()

    def flat(ids, cache):  # one by which a pass takes a second, whatever its rows
        now[0] += 1
        return real(ids, cache)

    monkeypatch.setattr(engine, "logits", flat)
    winning = Speculation(Oracle(prompt, answer, wrong=2))
    engine.generate(prompt, max_new_tokens=200, speculation=winning)
    assert winning.rests == 0
    assert winning.passes < 120
    assert f"{winning.kept} of {winning.guessed} guesses kept" in winning.report()


def test_the_seconds_of_the_steps_are_those_of_the_passes(engine, monkeypatch):
    prompt = [7, 8, 9]
    answer = engine.generate(prompt, max_new_tokens=13).token_ids
    ticks = itertools.count()
    monkeypatch.setattr(speculative.time, "perf_counter", lambda: float(next(ticks)))
    steps = list(engine.stream(prompt, max_new_tokens=13, speculation=always(Oracle(prompt, answer), most=3)))
    assert [step.seconds for step in steps] == [1.0] + [1.0, 0, 0, 0] * 3


def test_lookup_finds_the_latest_and_longest_match():
    lookup = PromptLookup(longest=3, shortest=2)
    assert lookup.guess([1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 2) == [4, 9]  # three tokens match before two do
    assert lookup.guess([2, 3, 4, 9, 2, 3, 5, 8, 2, 3], 3) == [5, 8, 2]
    assert lookup.guess([7, 7, 7], 5) == [7]
    assert lookup.guess([1, 2, 3, 4, 3], 5) == []  # one token is no match
    assert PromptLookup(3, 1).guess([1, 2, 3, 4, 3], 5) == [4, 3]
    assert lookup.guess([1], 5) == lookup.guess([], 5) == []


def test_a_draft_model_guesses_what_it_would_answer(engine, tiny_pair):
    other, _ = tiny_pair("mha")
    drafter = DraftModel(other)
    for tokens in ([3, 4, 5], [3, 4, 5, 6, 7], [3, 4, 9], [3, 4, 9]):
        assert drafter.guess(tokens, 4) == other.generate(tokens, max_new_tokens=4).token_ids
    full = list(range(2, 130)) * 2
    assert drafter.guess(full[:256], 4) == []
    assert len(drafter.guess(full[:254], 4)) == 2
    plain = engine.generate([3, 4, 5], max_new_tokens=20)
    speculation = always(DraftModel(other))
    assert engine.generate([3, 4, 5], max_new_tokens=20, speculation=speculation).token_ids == plain.token_ids


def test_settings_that_make_no_sense_are_refused(engine):
    for wrong in (0, -1, 2.5, "5"):
        with pytest.raises(LessonError):
            Speculation(PromptLookup(), most=wrong)
    with pytest.raises(LessonError):
        PromptLookup(longest=2, shortest=3)

    class TooMany:
        def guess(self, tokens, most):
            return [1] * (most + 1)

    with pytest.raises(LessonError, match="TooMany gave 6 guesses: at most 5 fit"):
        engine.generate([3, 4], max_new_tokens=20, speculation=always(TooMany()))


@pytest.mark.parametrize("dtype", ["float32", "int4"])
def test_real_text_is_the_same(real, dtype):
    """Also where rounding could tell one row from several: then the two best scores are a near tie."""
    engine = real if dtype == "float32" else llmlesson.load(dtype=dtype, device="cpu")
    prompt = engine.tokenizer.encode("red, green, blue, yellow, red, green, blue, yellow, red, green,")
    plain = engine.generate(prompt, max_new_tokens=24)
    speculation = always(PromptLookup())
    got = engine.generate(prompt, max_new_tokens=24, speculation=speculation)
    assert speculation.kept > 5
    if got.token_ids != plain.token_ids:
        same = next(i for i, (a, b) in enumerate(zip(got.token_ids, plain.token_ids, strict=False)) if a != b)
        scores = engine.logits(plain.prompt_ids + plain.token_ids[:same])[-1]
        best = scores.topk(2).values
        assert best[0] - best[1] < 0.02
