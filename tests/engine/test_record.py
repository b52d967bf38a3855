"""What record() keeps is what the forward pass computed."""

from __future__ import annotations

import pytest
import torch

from llmlesson import BatchEngine, LessonError
from llmlesson.engine.attention import attend_reference


@pytest.fixture
def engine(tiny_pair):
    return tiny_pair("gqa")[0]


def test_a_prefill_and_its_decode_steps(engine, ids):
    with engine.record() as recording:
        cache, token = engine.prefill(ids(9))
        engine.decode(cache, token)
    assert len(recording.passes) == 2
    prefill, decode = recording.passes
    assert prefill[0].q.shape == (6, 9, 10)
    assert prefill[0].k.shape == prefill[0].v.shape == (2, 9, 10)
    assert prefill[0].weights.shape == (6, 9, 9)
    assert decode[2].q.shape == (6, 1, 10)
    assert decode[2].weights.shape == (6, 1, 10)
    assert recording[2] is decode[2]
    for layer in range(3):
        assert torch.equal(decode[layer].k, cache.keys(layer))
        assert torch.equal(decode[layer].v, cache.values(layer))
    torch.testing.assert_close(prefill[0].weights.sum(-1), torch.ones(6, 9))


def test_the_residual_stream_runs_through_the_layers(engine, ids):
    prompt = ids(7)
    with engine.record() as recording:
        logits = engine.logits(prompt)
    assert torch.equal(recording[0].before, engine.model.embedding[prompt])
    assert torch.equal(recording[0].after, recording[1].before)
    assert torch.equal(engine.model.logits(recording[2].after), logits)
    # One layer put together again from its parts.
    record, layer = recording[1], engine.model.layers[1]
    attended = attend_reference(record.q, record.k, record.v).transpose(0, 1).flatten(1)  # [T, Hq D]
    x = record.before + attended @ layer.out
    x = x + engine.model._mlp(layer, engine.model._norm(x, layer.mlp_norm))
    torch.testing.assert_close(x, record.after, atol=1e-4, rtol=1e-4)


def test_only_the_chosen_layers_and_only_inside_the_with(engine, ids):
    prompt = ids(5)
    expected = engine.logits(prompt)
    with engine.record([1]) as recording:
        assert torch.equal(engine.logits(prompt), expected)
    assert list(recording.passes[0]) == [1]
    engine.logits(prompt)
    assert len(recording.passes) == 1
    with pytest.raises(ZeroDivisionError), engine.record():
        raise ZeroDivisionError
    assert engine.model.recording is None
    with pytest.raises(LessonError, match="layers 0 to 2"), engine.record([3]):
        pass


def test_a_batch_makes_no_steps_and_goes_on_afterwards(engine, ids):
    batch = BatchEngine(engine, 9)
    prompt = ids(4)
    request = batch.add(prompt, max_new_tokens=3)
    batch.step()
    with engine.record() as recording, pytest.raises(LessonError, match="one sequence, not a batch"):
        batch.step()
    assert recording.passes == []
    while len(batch):
        batch.step()
    assert request.token_ids == engine.generate(prompt, 3).token_ids
