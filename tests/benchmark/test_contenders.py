"""Every contender does the whole work: the tokens, the steps and the passes that it is timed for."""

from __future__ import annotations

import itertools
import time

import pytest
import torch

from llmlesson.benchmark import contenders

PROMPT = list(range(10, 22))


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is one second later."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))


@pytest.fixture
def passes(monkeypatch):
    """The shapes of the ids that the engine's model reads, pass by pass."""

    def watch(engine):
        seen = []
        forward = engine.model.forward
        monkeypatch.setattr(
            engine.model, "forward", lambda ids, *a, **k: seen.append(ids.shape[-2:]) or forward(ids, *a, **k)
        )
        return seen

    return watch


def everything_ends(engine, monkeypatch):
    """Whatever token comes, it is an end-of-sequence token."""
    monkeypatch.setattr(engine, "eos_token_ids", frozenset(range(engine.config.vocab_size)))


def test_ours_goes_on_past_the_end_of_sequence(tiny_pair, monkeypatch, passes):
    engine, _ = tiny_pair("gqa")
    everything_ends(engine, monkeypatch)
    seen = passes(engine)
    arrivals = contenders.ours(engine)([PROMPT], 5)
    assert len(arrivals) == 6
    assert arrivals == sorted(arrivals)
    assert [list(shape)[-1] for shape in seen] == [12, 1, 1, 1, 1, 1]
    assert len(engine.eos_token_ids) == engine.config.vocab_size  # the caller's engine is as it was


def test_ours_reads_a_batch_together(tiny_pair, passes):
    engine, _ = tiny_pair("gqa")
    seen = passes(engine)
    assert len(contenders.ours(engine)([PROMPT, PROMPT, PROMPT], 2)) == 3
    assert [tuple(shape) for shape in seen] == [(1, 36), (1, 3), (1, 3)]


def test_without_a_cache_everything_is_read_again(tiny_pair, passes):
    engine, _ = tiny_pair("gqa")
    seen = passes(engine)
    assert len(contenders.ours_without_cache(engine)([PROMPT], 2)) == 3
    assert [list(shape)[-1] for shape in seen] == [12, 13, 14]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("batch", [1, 3])
def test_transformers_goes_on_past_the_end_of_sequence(tiny_folder, cache, batch):
    engine, folder = tiny_folder
    model = contenders.transformers_model(str(folder), engine)
    seen = []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape), with_kwargs=True)
    model.generation_config.eos_token_id = None
    arrivals = contenders.transformers_generate(model, cache)([PROMPT] * batch, 4)
    assert len(arrivals) == 5
    assert arrivals == sorted(arrivals)
    assert [tuple(shape) for shape in seen] == [(batch, 12)] + [(batch, 1)] * 4


def test_transformers_has_the_same_weights_and_no_end_of_sequence(tiny_folder):
    engine, folder = tiny_folder
    model = contenders.transformers_model(str(folder), engine)
    assert model.generation_config.eos_token_id is None
    assert not model.training
    torch.testing.assert_close(model.lm_head.weight.T, engine.model.head, rtol=0, atol=0)


def test_a_generate_that_stops_early_is_noticed(tiny_folder):
    engine, folder = tiny_folder
    model = contenders.transformers_model(str(folder), engine)
    model.generation_config.eos_token_id = list(range(engine.config.vocab_size))
    with pytest.raises(RuntimeError, match="1 tokens instead of 5"):
        contenders.transformers_generate(model, "dynamic")([PROMPT], 4)


def test_the_clock_starts_with_the_call(tiny_pair, clock):
    engine, _ = tiny_pair("gqa")
    arrivals = contenders.ours_without_cache(engine)([PROMPT], 2)
    assert arrivals == [1.0, 2.0, 3.0]


def test_the_first_thing_that_a_streamer_gets_is_the_prompt(clock):
    arrivals = contenders._Arrivals()
    for value in (torch.tensor(PROMPT), torch.tensor([1]), torch.tensor([2])):
        arrivals.put(value)
    assert arrivals.seconds == [1.0, 2.0]
