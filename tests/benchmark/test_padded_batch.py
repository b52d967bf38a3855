"""The batch that the paged one is measured against computes the same as each sequence alone."""

from __future__ import annotations

import pytest
import torch
from engine.tiny import MODELS

from llmlesson import LessonError
from llmlesson.benchmark.padded_batch import PaddedBatch


@pytest.mark.parametrize("name", MODELS)
def test_every_row_is_what_its_sequence_is_alone(name, tiny_pair):
    engine = tiny_pair(name)[0]
    prompts = [list(range(3, 3 + n)) for n in (3, 9, 1, 6)]
    batch = PaddedBatch(engine, prompts, 20)
    caches = [engine.new_cache(20) for _ in prompts]
    alone = [engine.read(prompt, cache) for prompt, cache in zip(prompts, caches, strict=True)]
    for _ in range(4):
        torch.testing.assert_close(batch.logits, torch.stack(alone), atol=2e-4, rtol=2e-4)
        tokens = batch.logits.argmax(-1).tolist()
        batch.step(tokens)
        alone = [engine.read([token], cache) for token, cache in zip(tokens, caches, strict=True)]
    assert batch.lengths == [7, 13, 5, 10]


def test_a_full_row_is_refused(tiny_pair):
    engine = tiny_pair("gqa")[0]
    batch = PaddedBatch(engine, [[3, 4, 5], [3, 4, 5, 6, 7]], 6)
    batch.step([1, 2])
    with pytest.raises(LessonError, match="full"):
        batch.step([1, 2])
    assert batch.lengths == [4, 6]
    with pytest.raises(LessonError):
        PaddedBatch(engine, [[5] * 9], 8)
