"""The counted cost against torch's own FLOP counter on the real forward pass, and against real tensors."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from engine import tiny
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llmlesson
from llmlesson.measure import cost


def counted(work, math_attention=True):
    """FLOPs that torch counts. It does not know the fused CPU kernel of attention, but the plain one is two bmm."""
    backends = [SDPBackend.MATH] if math_attention else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(backends), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def all_pairs(c):
    """FLOPs of a pass whose attention kernel computes also what the mask hides, as torch counts it."""
    pairs = sum(c.cached + t + 1 for t in range(c.tokens))
    return c.flops - c.attention_flops + c.attention_flops * c.tokens * (c.cached + c.tokens) // pairs


@pytest.mark.parametrize("name", tiny.MODELS)
@pytest.mark.parametrize("cached", [0, 5])
@pytest.mark.parametrize("tokens", [1, 7])
def test_flops_are_those_that_torch_counts(tiny_pair, name, tokens, cached):
    engine, _ = tiny_pair(name)
    cache = engine.new_cache(32)
    if cached:
        engine.prefill(range(3, 3 + cached), cache)
    c = cost.prefill(engine.config, tokens, cached)
    assert counted(lambda: engine.prefill(range(20, 20 + tokens), cache)) == all_pairs(c)


def test_flops_of_the_default_model(real):
    cache = real.new_cache(64)
    prompt = range(100, 138)
    assert counted(lambda: real.prefill(prompt, cache)) == all_pairs(cost.prefill(real.config, 38))
    assert counted(lambda: real.decode(cache, 7)) == cost.decode(real.config, 38).flops


def test_causal_attention_is_what_single_steps_add_up_to(tiny_pair):
    """Read one by one, tokens meet exactly the positions before them: nothing is computed and masked."""
    engine, _ = tiny_pair("gqa-3")
    cache = engine.new_cache(32)
    engine.prefill([3, 4], cache)
    steps = [counted(lambda: engine.decode(cache, 9)) for _ in range(6)]
    whole = cost.prefill(engine.config, 6, cached=2)
    heads = 5 * whole.head_flops  # single steps compute logits every time
    assert sum(steps) == whole.flops + heads
    assert whole.flops < all_pairs(whole)


def test_torch_leaves_fused_attention_out(tiny_pair):
    """Why the tests above choose the plain kernel. When this fails, torch has learnt to count the fused one."""
    engine, _ = tiny_pair("mha")
    c = cost.prefill(engine.config, 7)
    without_attention = counted(lambda: engine.prefill(range(3, 10)), math_attention=False)
    assert without_attention == c.flops - c.attention_flops


@pytest.mark.parametrize("name", tiny.MODELS)
@pytest.mark.parametrize("cached", [0, 5])
def test_kv_bytes_are_those_of_the_cache(tiny_pair, name, cached):
    engine, _ = tiny_pair(name)
    cache = engine.new_cache(32)
    if cached:
        engine.prefill(range(3, 3 + cached), cache)
    before = cache.nbytes
    engine.prefill(range(20, 27), cache)
    c = cost.prefill(engine.config, 7, cached)
    assert c.kv_written_bytes == cache.nbytes - before
    assert c.kv_read_bytes == cache.nbytes


@pytest.mark.parametrize("name", tiny.MODELS)
def test_weight_bytes_are_those_of_the_loaded_weights(tiny_pair, name):
    """All of them, less the embedding table: only some of its rows are read; a tied one counts as the output head."""
    engine, _ = tiny_pair(name)
    model = engine.model
    read = [model.head, model.norm, *(tensor for layer in model.layers for tensor in tensors(layer))]
    assert cost.decode(engine.config, 9).weight_bytes == sum(tensor.nbytes for tensor in read)


@pytest.mark.parametrize("quantized", ["int8", "int4"])
@pytest.mark.parametrize("name", ["tied", "qwen2", "qwen3"])
def test_quantized_weight_bytes_are_those_of_the_loaded_weights(name, quantized, tmp_path):
    tiny.make(name, tmp_path)
    model = llmlesson.load(tmp_path, device="cpu", dtype=quantized).model
    read = [model.head, model.norm, *(tensor for layer in model.layers for tensor in tensors(layer))]
    step = cost.decode(model.config, 9, quantized=quantized)
    assert step.weight_bytes == sum(tensor.nbytes for tensor in read)
    full = cost.decode(model.config, 9)
    assert (step.flops, step.kv_read_bytes) == (full.flops, full.kv_read_bytes)


def tensors(layer):
    values = (getattr(layer, field.name) for field in dataclasses.fields(layer))
    return [value for value in values if hasattr(value, "nbytes")]


def test_the_default_model_in_numbers(real):
    """Against what is known of it: 134,515,008 parameters, 46,080 bytes of KV cache a token in float32."""
    step = cost.decode(real.config, 99)
    assert step.weight_bytes == 4 * 134_515_008
    assert step.kv_written_bytes == 46_080
    assert step.kv_read_bytes == 100 * 46_080


def test_a_batch_shares_the_weights_and_nothing_else(tiny_pair):
    engine, _ = tiny_pair("gqa")
    one, five = (cost.decode(engine.config, 11, batch=batch) for batch in (1, 5))
    assert five.flops == 5 * one.flops
    assert five.kv_read_bytes == 5 * one.kv_read_bytes
    assert five.kv_written_bytes == 5 * one.kv_written_bytes
    assert five.weight_bytes == one.weight_bytes


def test_half_the_bytes_in_16_bits(tiny_pair):
    engine, _ = tiny_pair("qwen3")
    full, half = (cost.decode(engine.config, 11, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    assert full.nbytes == 2 * half.nbytes
    assert full.flops == half.flops
    assert half.intensity == 2 * full.intensity
