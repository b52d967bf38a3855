"""What an answer takes with the cache and without, against both loops run on a real forward pass."""

from __future__ import annotations

import pytest
import torch

from llmlesson import LessonError
from llmlesson.measure import answer, cost

PROMPT, NEW = [3, 4, 5, 6, 7], 4


def run_with_cache(engine):
    cache, token = engine.prefill(PROMPT)
    for _ in range(NEW - 1):
        cache, token = engine.decode(cache, token)


def run_without_cache(engine):
    ids = list(PROMPT)
    for _ in range(NEW):
        ids.append(engine.prefill(ids)[1])


@pytest.mark.parametrize(
    ("run", "counted"), [(run_with_cache, answer.with_cache), (run_without_cache, answer.without_cache)]
)
def test_counts_are_those_of_the_loop(tiny_pair, run, counted):
    engine, _ = tiny_pair("gqa")
    with engine.record() as recording:
        run(engine)
    c = counted(engine.config, len(PROMPT), NEW)
    layers = [layer for one_pass in recording.passes for layer in one_pass.values()]
    assert c.passes == len(recording.passes)
    assert c.positions == sum(len(one_pass[0].before) for one_pass in recording.passes)
    new_keys = sum(len(layer.before) * layer.k.shape[0] for layer in layers)
    assert c.kv_projections == 2 * new_keys
    assert c.attention_reads == sum(int(torch.count_nonzero(layer.weights)) for layer in layers)


def test_flops_are_those_of_the_passes(tiny_pair):
    config = tiny_pair("gqa")[0].config
    passes = [cost.prefill(config, 5), *(cost.decode(config, cached) for cached in (5, 6, 7))]
    assert answer.with_cache(config, 5, 4).flops == sum(c.flops for c in passes)
    assert answer.without_cache(config, 5, 4).flops == sum(cost.prefill(config, n).flops for n in (5, 6, 7, 8))
    assert answer.with_cache(config, 5, 1) == answer.without_cache(config, 5, 1)


def test_the_articles_case(real):
    """2,000 tokens of prompt and 500 of answer, in closed form."""
    c = real.config
    cached, repeated = answer.with_cache(c, 2000, 500), answer.without_cache(c, 2000, 500)
    assert cached.positions == 2000 + 499
    assert repeated.positions == 500 * 2000 + 500 * 499 // 2
    heads_and_layers = c.num_attention_heads * c.num_hidden_layers
    assert cached.attention_reads == heads_and_layers * 2499 * 2500 // 2
    assert repeated.attention_reads == heads_and_layers * sum(n * (n + 1) // 2 for n in range(2000, 2500))


def test_break_even_is_the_first_context_at_which_attention_is_half(real):
    by_flops, by_bytes = answer.decode_break_even(real.config)
    for context, reached in ((by_flops - 1, False), (by_flops, True)):
        step = cost.decode(real.config, context)
        assert (2 * step.attention_flops >= step.flops) == reached
    for context, reached in ((by_bytes - 1, False), (by_bytes, True)):
        step = cost.decode(real.config, context)
        assert (step.kv_read_bytes >= step.weight_bytes) == reached


@pytest.mark.parametrize("counted", [answer.with_cache, answer.without_cache])
@pytest.mark.parametrize(("prompt", "new"), [(0, 1), (1, 0)])
def test_nothing_to_read_or_to_write(real, counted, prompt, new):
    with pytest.raises(LessonError, match="at least 1"):
        counted(real.config, prompt, new)
