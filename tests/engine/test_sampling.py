"""Sampling: equal to transformers' processors, and every edge defined."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from llmlesson import LessonError, Sampling
from llmlesson.engine.sampling import Sampler

SETTINGS = [
    dict(temperature=0.7),
    dict(temperature=1.0, top_k=5),
    dict(temperature=1.0, top_k=1),
    dict(temperature=1.0, top_p=0.9),
    dict(temperature=1.0, top_p=0.05),
    dict(temperature=1.0, min_p=0.1),
    dict(temperature=1.0, min_p=1.0),
    dict(temperature=1.0, repetition_penalty=1.5),
    dict(temperature=1.0, repetition_penalty=0.6),
    dict(temperature=0.6, top_k=20, top_p=0.8, min_p=0.05, repetition_penalty=1.2),
    dict(temperature=2.5, top_k=40, top_p=0.95),
]


def reference(settings, logits, seen):
    processors = LogitsProcessorList()
    if "repetition_penalty" in settings:
        processors.append(RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    processors.append(TemperatureLogitsWarper(settings["temperature"]))
    if "top_k" in settings:
        processors.append(TopKLogitsWarper(settings["top_k"]))
    if "top_p" in settings:
        processors.append(TopPLogitsWarper(settings["top_p"]))
    if "min_p" in settings:
        processors.append(MinPLogitsWarper(settings["min_p"]))
    return processors(torch.tensor([seen]), logits[None].clone())[0].softmax(dim=0)


def last(stages):
    return list(stages.values())[-1]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equal_to_transformers(settings):
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        logits = 4 * torch.randn(101, generator=generator)
        seen = torch.randint(0, 101, (15,), generator=generator).tolist()
        got = last(Sampling(**settings).explain(logits, seen))
        torch.testing.assert_close(got, reference(settings, logits, seen), atol=1e-6, rtol=1e-5)


def test_explain_names_the_stages_in_order_and_leaves_the_logits():
    logits = torch.randn(50)
    before = logits.clone()
    stages = Sampling(0.5, top_k=10, top_p=0.9, min_p=0.01, repetition_penalty=1.1).explain(logits, [1, 2])
    assert list(stages) == ["logits", "repetition_penalty", "temperature", "top_k", "top_p", "min_p"]
    assert torch.equal(logits, before)
    for distribution in stages.values():
        assert distribution.sum().item() == pytest.approx(1, abs=1e-5)
    kept = [int((distribution > 0).sum()) for distribution in stages.values()]
    assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (dict(top_k=0), 4),
        (dict(top_k=3), 3),
        (dict(top_k=99), 4),
        (dict(top_p=0.0), 1),
        (dict(top_p=1.0), 4),
        (dict(min_p=0.0), 4),
        (dict(min_p=1.0), 1),
        (dict(temperature=1e9), 4),
        (dict(temperature=1e-30), 1),
    ],
    ids=str,
)
def test_edges(settings, kept):
    stages = Sampling(**{"temperature": 1.0, **settings}).explain(torch.tensor([1.0, 3.0, 2.0, 0.5]))
    assert int((last(stages) > 0).sum()) == kept
    assert last(stages)[1] == last(stages).max()


def test_ties_at_the_edge_of_top_k_stay():
    stages = Sampling(1.0, top_k=2).explain(torch.tensor([1.0, 2.0, 1.0, 0.0, 1.0]))
    assert (last(stages) > 0).tolist() == [True, True, True, False, True]


def test_all_but_one_token_masked():
    logits = torch.full((6,), -math.inf)
    logits[4] = 0.3
    for sampling in (Sampling(), Sampling(0.8, top_k=3, top_p=0.5, min_p=0.2, seed=1)):
        assert int(Sampler(sampling, [], logits.device).choose(logits)) == 4


def test_temperature_zero_is_greedy_whatever_else_is_set():
    logits = torch.randn(60)
    for more in ({}, dict(top_k=3), dict(top_p=0.1), dict(min_p=0.9), dict(seed=4)):
        sampling = Sampling(0.0, **more)
        assert int(Sampler(sampling, [], logits.device).choose(logits)) == int(logits.argmax())
        assert last(sampling.explain(logits)).argmax() == logits.argmax()


def test_draws_follow_the_distribution():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    sampling = Sampling(0.9, top_k=3, seed=11)
    sampler = Sampler(sampling, [], logits.device)
    counts = torch.zeros(4)
    for _ in range(4000):
        counts[int(sampler.choose(logits))] += 1
    # Four standard deviations of a share of 4,000 draws are at most 0.032.
    torch.testing.assert_close(counts / 4000, last(sampling.explain(logits)), atol=0.032, rtol=0)


def test_the_same_seed_gives_the_same_tokens(tiny_pair, ids):
    engine = tiny_pair("gqa")[0]
    prompt = ids(8)

    def answer(seed):
        return engine.generate(prompt, max_new_tokens=15, sampling=Sampling(1.5, seed=seed)).token_ids

    assert answer(1) == answer(1)
    assert len({tuple(answer(seed)) for seed in range(5)}) > 1
    assert answer(None) != answer(None) or answer(None) != answer(None)


@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_repetition_penalty_in_a_whole_answer_equals_transformers(penalty, tiny_pair, ids):
    engine, model = tiny_pair("gqa")
    prompt = ids(10)
    with torch.no_grad():
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=15, do_sample=False, repetition_penalty=penalty, pad_token_id=0
        )
    got = engine.generate(prompt, max_new_tokens=15, sampling=Sampling(repetition_penalty=penalty)).token_ids
    assert got == expected[0, 10:].tolist()


@pytest.mark.parametrize(
    "settings",
    [
        dict(temperature=-1),
        dict(temperature=math.inf),
        dict(temperature=math.nan),
        dict(top_k=-1),
        dict(top_k=2.5),
        dict(top_p=1.1),
        dict(top_p=-0.1),
        dict(min_p=2),
        dict(repetition_penalty=0),
        dict(presence_penalty=math.nan),
        dict(frequency_penalty=math.inf),
        dict(frequency_penalty="1"),
    ],
    ids=str,
)
def test_senseless_settings_are_refused_by_name(settings):
    with pytest.raises(LessonError, match=next(iter(settings))):
        Sampling(**settings)


@pytest.mark.parametrize("tokens", [2, 4, 8])
def test_exact_ties_at_the_edge_of_top_p(tokens):
    """Equal scores have exact probabilities: as few stay as reach p, and no more where they reach it exactly."""
    logits = torch.zeros(tokens)
    for kept in range(1, tokens + 1):
        stages = Sampling(1.0, top_p=kept / tokens).explain(logits)
        assert int((last(stages) > 0).sum()) == kept
        stages = Sampling(1.0, top_p=(kept - 0.5) / tokens).explain(logits)
        assert int((last(stages) > 0).sum()) == kept
        if kept < tokens:
            reference_kept = reference(dict(temperature=1.0, top_p=kept / tokens), logits, [0]) > 0
            assert int(reference_kept.sum()) == kept


def test_ties_at_the_edge_of_min_p_stay():
    logits = torch.tensor([0.0, 0.0, -50.0])
    assert (last(Sampling(1.0, min_p=1.0).explain(logits)) > 0).tolist() == [True, True, False]


def test_top_k_of_the_whole_vocabulary_is_no_stage():
    logits = torch.randn(4)
    assert list(Sampling(1.0, top_k=3).explain(logits)) == ["logits", "top_k"]
    for settings in (dict(top_k=4), dict(top_k=0), dict(top_p=1.0), dict(min_p=0.0), dict(repetition_penalty=1.0)):
        assert list(Sampling(1.0, **settings).explain(logits)) == ["logits"]


def test_at_temperature_zero_one_token_has_it_all():
    stages = Sampling(0.0, top_k=2).explain(torch.tensor([1.0, 3.0, 2.0]))
    assert list(stages) == ["logits", "temperature"]
    assert stages["temperature"].tolist() == [0.0, 1.0, 0.0]
    assert stages["temperature"].dtype == torch.float32


def test_only_a_penalty_needs_the_history():
    device = torch.device("cpu")
    for name, value in (("repetition_penalty", 1.1), ("presence_penalty", 0.1), ("frequency_penalty", -0.1)):
        assert Sampler(Sampling(**{name: value}), [], device).needs_history
    assert not Sampler(Sampling(0.7, top_k=3, top_p=0.5, min_p=0.1), [], device).needs_history


def test_tokens_of_prompt_and_answer_are_penalized():
    logits = torch.tensor([2.0, 1.9, 1.8])
    sampler = Sampler(Sampling(repetition_penalty=4.0), [0], logits.device)
    assert int(sampler.choose(logits)) == 1
    sampler.saw(1)
    assert int(sampler.choose(logits)) == 2
    assert Sampling(repetition_penalty=2.0).explain(logits, [])["repetition_penalty"].equal(logits.softmax(dim=0))


def penalized(score, token, answer, presence, frequency):
    """OpenAI's formula, for one token: mu[j] - c[j] * alpha_frequency - float(c[j] > 0) * alpha_presence."""
    count = sum(other == token for other in answer)
    return score - count * frequency - float(count > 0) * presence


@pytest.mark.parametrize(("presence", "frequency"), [(1.5, 0.0), (0.0, 0.7), (0.6, 0.4), (-1.0, -0.5)])
def test_presence_and_frequency_penalties_in_a_whole_answer(presence, frequency, tiny_pair, ids):
    """Greedy, against transformers' scores of the whole text and the formula above: the prompt doesn't count."""
    engine, reference_model = tiny_pair("gqa")
    prompt = ids(20)
    sampling = Sampling(presence_penalty=presence, frequency_penalty=frequency)
    request = engine.request(prompt, 15, sampling, ignore_eos=True)
    answer = []
    cache = engine.new_cache(64)
    unread = prompt
    for _ in range(15):
        with torch.no_grad():
            scores = reference_model(torch.tensor([[*prompt, *answer]])).logits[0, -1].tolist()
        changed = [penalized(score, token, answer, presence, frequency) for token, score in enumerate(scores)]
        answer.append(changed.index(max(changed)))
        step = request.take(engine.read(unread, cache))
        unread = [step.token_id]
    assert request.token_ids == answer
    plain = engine.request(prompt, 15, Sampling(), ignore_eos=True)
    cache, unread = engine.new_cache(64), prompt
    while not plain.finish_reason:
        unread = [plain.take(engine.read(unread, cache)).token_id]
    assert plain.token_ids != answer  # so that the test can fail


def test_penalties_are_stages_after_the_repetition_penalty_and_before_the_temperature():
    logits = torch.tensor([2.0, 1.0, 3.0])
    sampling = Sampling(2.0, repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    stages = dict(sampling.stages(logits, seen=[0, 2], answer=[2, 2]))
    names = ["logits", "repetition_penalty", "frequency_penalty", "presence_penalty", "temperature"]
    assert list(stages) == names
    assert stages["presence_penalty"].tolist() == [1.0, 1.0, 1.5 - 2 * 0.25 - 0.5]


def test_a_copy_counts_its_own_answer():
    sampler = Sampler(Sampling(frequency_penalty=1.0), [], torch.device("cpu"))
    sampler.saw(0)
    copy = sampler.copy()
    copy.saw(1)
    logits = torch.tensor([2.0, 1.5, 1.2])
    assert int(copy.choose(logits)) == 2
    assert int(sampler.choose(logits)) == 1


def test_edges_of_the_settings_are_allowed():
    for settings in (
        dict(temperature=0),
        dict(top_k=0),
        dict(top_p=0),
        dict(top_p=1),
        dict(min_p=0),
        dict(min_p=1),
        dict(repetition_penalty=1e-9),
    ):
        Sampling(**settings)
    for settings in (dict(min_p=-0.1), dict(min_p=1.1), dict(repetition_penalty=-1), dict(repetition_penalty=math.inf)):
        with pytest.raises(LessonError, match=next(iter(settings))):
            Sampling(**settings)


def test_a_copy_draws_the_same_tokens_and_goes_on_by_itself():
    assert Sampling().temperature == 0
    logits = torch.zeros(50)
    sampler = Sampler(Sampling(1.0, seed=3, repetition_penalty=2.0), [1], logits.device)
    sampler.choose(logits)
    copy = sampler.copy()
    drawn = [int(copy.choose(logits)) for _ in range(5)]
    assert [int(sampler.choose(logits)) for _ in range(5)] == drawn
    copy.saw(2)
    greedy = copy.copy(Sampling(repetition_penalty=2.0))
    scores = torch.tensor([0.5, 0.9, 0.8])
    assert int(greedy.choose(scores)) == 0  # 1 and 2 were seen
    assert int(sampler.copy(Sampling(repetition_penalty=1.5)).choose(scores)) == 2  # only 1 was


def test_a_temperature_too_small_for_float32_takes_the_best():
    scores = torch.tensor([1.0, 3.0, 2.0])
    assert Sampling(temperature=3e-211).explain(scores)["temperature"].tolist() == [0, 1, 0]
