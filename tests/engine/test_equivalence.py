"""One sequence, many ways to compute it, one result: without a cache, with one, in chunks, taken back, cloned, paged
beside others, and by the step that a CUDA graph replays."""

from __future__ import annotations

import math

import pytest
import torch
from engine import tiny

from llmlesson.engine.attention import attend, attend_reference, attention_weights
from llmlesson.engine.cuda_graph import GraphedDecode, bucket
from llmlesson.engine.paged_cache import Span

MODELS = [*tiny.MODELS, "real"]
PROMPT, ANSWER = 11, 6


def rows(engine, ids, cache, sizes):
    """Logits after every id, read in parts of the given sizes."""
    return torch.cat([engine.logits(part, cache) for part in torch.tensor(ids).split(sizes)])


def no_cache(engine, ids):
    return torch.stack([engine.logits(ids[: n + 1])[-1] for n in range(len(ids))])


def whole(engine, ids):
    return engine.logits(ids)


def chunks(size):
    return lambda engine, ids: rows(engine, ids, engine.new_cache(len(ids)), size)


def prefill_in_chunks_then_decode(engine, ids):
    cache = engine.new_cache(len(ids))
    engine.prefill(ids[:PROMPT], cache, chunk=3)
    return torch.cat([engine.logits(ids[:PROMPT]), rows(engine, ids[PROMPT:], cache, 1)])


def truncated_and_extended(engine, ids):
    cache = engine.new_cache(len(ids))
    first = rows(engine, ids[:PROMPT], cache, PROMPT)
    engine.prefill([5, 6, 7, 8], cache)
    cache.truncate(PROMPT)
    return torch.cat([first, rows(engine, ids[PROMPT:], cache, 4)])


def cloned(engine, ids):
    cache = engine.new_cache(len(ids))
    first = rows(engine, ids[:PROMPT], cache, PROMPT)
    copy = cache.clone()
    engine.prefill([5, 6, 7], cache)  # what happens to the original is nothing to the copy
    return torch.cat([first, rows(engine, ids[PROMPT:], copy, 2)])


def paged(size, chunk):
    """Text 1 of three in shuffled blocks, read in chunks, then a token a step, always beside those of the others."""

    @torch.no_grad()
    def run(engine, ids):
        c = engine.config
        texts = [[*ids[:4], *ids], ids, [*ids[3:], *ids[:5], *ids]]
        cache = engine.new_paged_cache(-(-150 // size), size)
        cache._storage.fill_(float("nan"))  # a block holds anything until it is written
        cache._storage[:, :, :, -1] = 0
        blocks = torch.randperm(cache.num_blocks, generator=torch.Generator().manual_seed(1)).tolist()
        tables = [[blocks.pop() for _ in range(-(-len(text) // size))] for text in texts]
        done, seen = [0, 0, 0], []
        while done[1] < len(ids):
            prompts = zip(done, (5, PROMPT, 9), strict=True)
            counts = [1 if done[1] >= PROMPT else min(chunk, end - n) for n, end in prompts]
            spans = [Span(t, n, count) for t, n, count in zip(tables, done, counts, strict=True) if count]
            new = [text[n : n + count] for text, n, count in zip(texts, done, counts, strict=True)]
            x = engine.model.forward(torch.tensor([[*new[0], *new[1], *new[2]]]), cache.step(spans))[0]
            seen.append(engine.model.logits(x[counts[0] : counts[0] + counts[1]]))
            done = [n + count for n, count in zip(done, counts, strict=True)]
        whole = engine.new_cache(len(ids))
        engine.read(ids, whole)
        for layer in range(c.num_hidden_layers):
            for got, expected in ((cache.keys, whole.keys), (cache.values, whole.values)):
                torch.testing.assert_close(got(layer, tables[1], len(ids)), expected(layer), atol=2e-4, rtol=2e-4)
        return torch.cat(seen)

    return run


def graph_safe(engine, ids):
    cache = engine.new_cache(len(ids) + 30)  # the step reads all 47 slots: those in use and those that are not
    first = rows(engine, ids[:PROMPT], cache, PROMPT)
    step = GraphedDecode(engine.model, cache)
    return torch.cat([first, torch.stack([step.logits(torch.tensor(token)) for token in ids[PROMPT:]])])


WAYS = {
    "no cache": no_cache,
    "chunks of 1": chunks(1),
    "chunks of 3": chunks(3),
    "chunks of 7": chunks(7),
    "prefill in chunks": prefill_in_chunks_then_decode,
    "truncated": truncated_and_extended,
    "cloned": cloned,
    "paged, blocks of 4": paged(4, 100),
    "paged, blocks of 3, chunks of 5": paged(3, 5),
    "paged, blocks of 1, chunks of 1": paged(1, 1),
    "graph-safe step": graph_safe,
}


@pytest.fixture
def engine_of(tiny_pair, request):
    return lambda name: request.getfixturevalue("real") if name == "real" else tiny_pair(name)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_one_pass(name, way, engine_of, ids):
    engine, sequence = engine_of(name), ids(PROMPT + ANSWER)
    torch.testing.assert_close(WAYS[way](engine, sequence), whole(engine, sequence), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 6), (6, 2), (6, 1), (9, 3), (1, 1)])
@pytest.mark.parametrize(("tokens", "length"), [(1, 1), (1, 9), (9, 9), (4, 9), (2, 2)])
def test_attend_equals_the_loop_that_a_learner_reads(heads, kv_heads, tokens, length):
    torch.manual_seed(0)
    q, k, v = torch.randn(heads, tokens, 8), torch.randn(kv_heads, length, 8), torch.randn(kv_heads, length, 8)
    expected = attend_reference(q, k, v)
    torch.testing.assert_close(attend(q[None], k[None], v[None])[0], expected, atol=1e-5, rtol=1e-5)
    weights = attention_weights(q, k)  # [Hq, T, S]
    shared = v.repeat_interleave(heads // kv_heads, dim=0)
    torch.testing.assert_close(weights @ shared, expected, atol=1e-5, rtol=1e-5)
    assert weights.triu(diagonal=length - tokens + 1).sum() == 0


def test_keys_and_values_are_not_repeated_for_the_group():
    """Peak memory of a decode step's attention: the repeated K and V alone would be 8 times K and V."""
    q = torch.randn(1, 8, 1, 64)
    k, v = torch.randn(1, 1, 4096, 64), torch.randn(1, 1, 4096, 64)
    with torch.profiler.profile(profile_memory=True) as profile:
        attend(q, k, v)
    allocated = sum(event.self_cpu_memory_usage for event in profile.events() if event.self_cpu_memory_usage > 0)
    assert allocated < k.nbytes


def test_slots_never_written_hold_no_nan(tiny_pair):
    """A masked slot has the weight 0, but 0 · NaN is NaN: memory as it comes would poison the graph-safe step."""
    step = tiny_pair("gqa")[0].new_cache(50).fixed_step(torch.tensor([3]), 50)
    q, kv = torch.ones(1, 6, 1, 10), torch.ones(1, 2, 1, 10)
    for layer in range(3):
        # Position 3 sees three slots of zeros and its own key: its share of the values is e^√10 / (3 + e^√10).
        share = math.exp(math.sqrt(10)) / (3 + math.exp(math.sqrt(10)))
        torch.testing.assert_close(step.attend(layer, q, kv, kv), torch.full((1, 6, 1, 10), share))


def test_buckets():
    assert [bucket(n, 3000) for n in (1, 256, 257, 1025, 2049)] == [256, 256, 512, 2048, 3000]
    assert bucket(5, 40) == 40
