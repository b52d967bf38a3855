"""Whatever shares a step with it, each request gets the answer that it gets alone.

Many settings, of which a run tries a few for each kind of model; LLMLESSON_GRID=full tries them all (some minutes).
In all of them unused memory is full of NaN, which a single read of a slot that isn't the request's own would show.
"""

from __future__ import annotations

import copy
import itertools
import os
import random

import pytest
import torch
from engine.tiny import MODELS

from llmlesson import BatchEngine, Sampling

GRID = list(itertools.product((1, 2, 4, 16), (True, False), ("plenty", "tight", "barely one"), (1000, 21, 7, 1)))
FEW = 3  # settings for each model where not all are tried
FULL = os.environ.get("LLMLESSON_GRID") == "full"

RANDOM = Sampling(temperature=1.5, top_k=40, top_p=0.95, repetition_penalty=1.3, seed=5)
HEAD = random.Random(1).choices(range(3, 131), k=33)


def ids(seed, tokens):
    return random.Random(seed).choices(range(3, 131), k=tokens)


# prompt, new tokens, sampling
REQUESTS = [
    ([7], 9, None),  # a single token
    *[(ids(n, n), 1 + n % 5, None) for n in (3, 4, 5, 15, 16, 17)],  # around the ends of blocks
    (ids(40, 40), 7, None),
    ([*HEAD[:32], *ids(1, 3)], 6, None),  # beginnings in common
    ([*HEAD, *ids(2, 6)], 6, RANDOM),
    (HEAD[:32], 5, None),
    (HEAD[:32], 5, None),  # the same once more
    (ids(17, 17), 8, RANDOM),  # its answer is drawn
    (ids(16, 16), 30, None),
]
LONGEST = max(len(prompt) + new - 1 for prompt, new, _ in REQUESTS)


def with_more_ends(engine):
    """The engine with five tokens that end an answer, so that some answers end early."""
    engine = copy.copy(engine)
    engine.eos_token_ids = frozenset([*engine.eos_token_ids, 11, 42, 77, 130])
    return engine


def poison(batch):
    """NaN in all blocks whose contents nobody can want any more."""
    unwanted = [block for block in batch.pool.free_blocks() if batch.pool.key(block) is None]
    batch.cache._storage[:, :, :, unwanted] = float("nan")


@pytest.fixture(scope="module")
def alone(tiny_pair):
    """alone(name) -> the engine and its answers to each request, one at a time."""
    known = {}

    def get(name):
        if name not in known:
            engine = with_more_ends(tiny_pair(name)[0])
            answers = [engine.generate(prompt, new, sampling) for prompt, new, sampling in REQUESTS]
            known[name] = engine, [(answer.token_ids, answer.finish_reason) for answer in answers]
        return known[name]

    return get


def settings_of(name):
    return GRID if FULL else random.Random(name).sample(GRID, FEW)


@pytest.mark.parametrize(
    ("name", "size", "share", "pool", "budget"), [(name, *chosen) for name in MODELS for chosen in settings_of(name)]
)
def test_every_answer_is_that_of_the_engine_alone(name, size, share, pool, budget, alone):
    engine, expected = alone(name)
    room = -(-LONGEST // size)
    blocks = {"plenty": 20 * room, "tight": 2 * room + 1, "barely one": room}[pool]
    batch = BatchEngine(engine, blocks, size, share, budget, max_running=6)
    poison(batch)
    requests = [batch.add(prompt, new, sampling) for prompt, new, sampling in REQUESTS]
    while len(batch):
        report = batch.step()
        assert 1 <= report.plan.tokens <= budget
        batch.scheduler.check()
        poison(batch)
    assert [(request.token_ids, request.finish_reason) for request in requests] == expected
    assert batch.pool.num_free == blocks
    assert not torch.isnan(batch.cache._storage[:, :, :, -1]).any()


def test_the_few_settings_cover_each_value_and_each_kind_of_end(alone):
    chosen = [setting for name in MODELS for setting in settings_of(name)]
    for position in range(4):
        assert {setting[position] for setting in chosen} == {setting[position] for setting in GRID}
    reasons = [reason for name in MODELS for _, reason in alone(name)[1]]
    assert {"eos", "length"} <= set(reasons)
    assert len({tuple(tokens) for tokens, _ in alone("gqa")[1]}) > 8  # the answers aren't all alike


def test_a_poisoned_slot_of_a_request_shows(alone):
    engine, expected = alone("gqa")
    batch = BatchEngine(engine, 64, 4)
    requests = [batch.add(prompt, new, sampling) for prompt, new, sampling in REQUESTS[:8]]
    batch.step()
    progress = batch.scheduler.progress(requests[7])
    batch.cache._storage[:, :, :, progress.table[2], 1] = float("nan")
    while len(batch):
        batch.step()
    assert requests[7].token_ids != expected[7][0]
    assert [request.token_ids for request in requests[:7]] == [tokens for tokens, _ in expected[:7]]
