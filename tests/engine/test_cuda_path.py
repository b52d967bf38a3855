"""The CUDA path, as far as it can be checked without a GPU: on fake tensors, which know device and shape only.

They refuse what would break on a GPU: mixing in a CPU tensor, and anything that must know a value (a host sync). Their
device is called "meta", since indexing a fake "cuda" tensor fails in a torch that is built without CUDA.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from llmlesson import Sampling
from llmlesson.engine.cache import KVCache
from llmlesson.engine.model import Model
from llmlesson.engine.paged_cache import PagedCache, Span

DEVICE = torch.device("meta")


@pytest.fixture(params=["gqa", "qwen2", "qwen3", "smollm3", "llama3-rope"])
def model(request, tiny_pair):
    """A tiny model whose weights are fake bfloat16 tensors on a device."""
    real = tiny_pair(request.param)[0].model

    def fake(value):
        return torch.empty(value.shape, dtype=torch.bfloat16, device=DEVICE) if torch.is_tensor(value) else value

    with FakeTensorMode():
        layers = [type(layer)(**{key: fake(value) for key, value in vars(layer).items()}) for layer in real.layers]
        weights = {key: fake(getattr(real, key)) for key in ("embedding", "norm", "head")}
        yield dataclasses.replace(real, layers=layers, **weights)


def new_cache(model: Model, batch=1, max_tokens=40):
    c = model.config
    return KVCache(
        c.num_hidden_layers, c.num_key_value_heads, c.head_dim, max_tokens, torch.bfloat16, DEVICE, model, batch
    )


def test_prefill_and_continuation_stay_on_the_device(model):
    cache = new_cache(model)
    for tokens in (9, 4, 1):
        x = model.forward(torch.zeros(1, tokens, dtype=torch.int64, device=DEVICE), cache)
        cache.advance(tokens)
        assert (x.device.type, x.dtype, x.shape) == ("meta", torch.bfloat16, (1, tokens, model.config.hidden_size))
    logits = model.logits(x[0, -1])
    assert (logits.device.type, logits.dtype) == ("meta", torch.float32)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_graph_safe_step_never_asks_the_device_for_a_value(model, batch):
    cache = new_cache(model, batch)
    positions = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
    tokens = torch.zeros(batch, 1, dtype=torch.int64, device=DEVICE)
    logits = model.logits(model.forward(tokens, cache.fixed_step(positions, 32))[:, -1])
    assert logits.shape == (batch, 131)
    assert logits.device.type == "meta"


@pytest.mark.parametrize("spans", [[(0, 9)], [(20, 1)], [(4, 1), (0, 6), (11, 1), (3, 5), (30, 1)]])
def test_a_paged_step_never_asks_the_device_for_a_value(model, spans):
    c = model.config
    shape = (c.num_hidden_layers, c.num_key_value_heads, c.head_dim)
    cache = PagedCache(*shape, 40, 4, torch.bfloat16, DEVICE, model)
    step = cache.step([Span(range(8), start, count) for start, count in spans])
    tokens = sum(count for _, count in spans)
    x = model.forward(torch.zeros(1, tokens, dtype=torch.int64, device=DEVICE), step)
    assert (x.device.type, x.dtype, x.shape) == ("meta", torch.bfloat16, (1, tokens, c.hidden_size))
    assert cache.keys(1, range(3), 10).shape == (c.num_key_value_heads, 10, c.head_dim)


def test_sampling_never_asks_the_device_for_a_value(model):
    logits = torch.zeros(131, device=DEVICE)
    for _, scores in Sampling(0.7, top_k=10, top_p=0.9, min_p=0.1).stages(logits):
        assert scores.device.type == "meta"


def test_such_faults_are_found(model):
    cache, one = new_cache(model), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    with pytest.raises(DataDependentOutputException):
        cache.fixed_step(one, int(one) + 1)
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        model.forward(torch.zeros(1, 1, dtype=torch.int64), cache.fixed_step(torch.zeros(1, dtype=torch.int64), 32))


@pytest.mark.gpu
def test_graph_and_eager_agree_on_a_gpu(real):
    import llmlesson

    engine = llmlesson.load(device="cuda", dtype="float32")
    prompt = "Explain quantum computing like I'm ten."
    assert engine.generate(prompt, 300).token_ids[:40] == real.generate(prompt, 40).token_ids
