"""The cache of our own engine, running the default model, is exactly as large as the formula says."""

from __future__ import annotations

from llmlesson.sizing import kv_cache

NAMES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


def test_live_cache_of_the_default_model(real):
    ids = real.tokenizer.chat("Explain quantum computing like I'm ten.")
    cache, token = real.prefill(ids)
    for _ in range(3):
        assert_equal(cache)
        cache, token = real.decode(cache, token)
    assert cache.length == len(ids) + 3
    assert_equal(cache)


def assert_equal(cache):
    size = kv_cache("SmolLM2-135M", cache.length, dtype=NAMES[str(cache.keys(0).dtype)])
    assert cache.nbytes == size.nbytes
    for layer in size.per_layer:
        assert cache.keys(layer.index).nbytes == layer.key_nbytes
        assert cache.values(layer.index).nbytes == layer.value_nbytes


def test_allocation_is_the_static_convention(real):
    cache = real.new_cache(100)
    dtype = NAMES[str(cache.keys(0).dtype)]
    assert (
        cache.allocated_nbytes == kv_cache("SmolLM2-135M", cache.max_tokens, dtype=dtype, convention="hf_static").nbytes
    )
