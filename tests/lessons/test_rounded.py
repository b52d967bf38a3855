"""An engine rounded in memory is the one that loading in bfloat16 gives."""

import torch

import llmlesson
from llmlesson.lessons.real import real_engine
from llmlesson.lessons.rounded import in_bfloat16


def test_the_same_weights_and_logits_as_loading_in_bfloat16():
    engine = real_engine()
    ours, loaded = in_bfloat16(engine), llmlesson.load(dtype="bfloat16")
    assert ours.dtype == torch.bfloat16
    for mine, theirs in zip(ours.model.layers, loaded.model.layers, strict=True):
        assert all(torch.equal(w, vars(theirs)[name]) for name, w in vars(mine).items() if isinstance(w, torch.Tensor))
    assert torch.allclose(ours.logits([1, 504, 260]), loaded.logits([1, 504, 260]), atol=0.5)
    assert engine.dtype == torch.float32
