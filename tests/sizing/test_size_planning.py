"""Whether a model fits a card, for how many users, how long and how fast at most."""

from __future__ import annotations

import pytest

from llmlesson.errors import LessonError
from llmlesson.sizing import Weights, fit, get_gpu, gpu_table, kv_cache, model_weights


def test_llama_8b_on_an_h100_by_hand():
    plan = fit("Llama-3.1-8B", "H100-80GB", context=8192)
    memory = 81559 * 2**20
    budget = memory - memory // 10 - 2 * 8_030_261_248
    assert (plan.weights_nbytes, plan.kv_budget_nbytes) == (2 * 8_030_261_248, budget)
    assert plan.users == budget // 2**30  # 8,192 tokens are one GiB
    assert plan.max_context == budget // 131072
    # The input embedding (128,256 × 4,096) is looked up, not read.
    read = 2 * (8_030_261_248 - 128_256 * 4096)
    assert plan.steps_per_second() == pytest.approx(3350e9 / (read + 2**30))
    assert plan.steps_per_second(plan.users) < plan.steps_per_second()
    assert plan.fits


def test_what_does_not_fit_says_how_many_cards():
    plan = fit("Llama-3.1-405B", "h100-80gb")
    assert not plan.fits
    assert (plan.users, plan.max_context) == (0, 0)
    assert "at least 11 of these cards" in plan.notes[0]
    assert "It does not fit." in plan.explain()
    assert fit("Llama-3.1-405B", "H100-80GB", tp=16).fits


@pytest.mark.parametrize(
    ("gpu", "dtype", "cards", "tp"),
    [
        ("H200-141GB", "q4_0", 2, 2),
        ("H200-141GB", "fp8", 3, 4),
        ("H100-80GB", "fp8", 6, 8),
        ("H100-80GB", "bf16", 11, 16),
    ],
)
def test_suggested_tp_is_the_next_power_of_two(gpu, dtype, cards, tp):
    plan = fit("Llama-3.1-405B", gpu, dtype)
    assert plan.notes[0] == f"The weights alone need at least {cards} of these cards. Try tp={tp}."
    enough = fit("Llama-3.1-405B", gpu, dtype, tp=tp)
    assert enough.kv_budget_nbytes > 0
    assert not any("weights alone" in note for note in enough.notes)


def test_quantised_weights_and_cache():
    plan = fit("Llama-3.1-8B", "RTX4090-24GB", "q4_0", "q8_0", 32768)
    assert plan.weights_nbytes == -(-8_030_261_248 * 18 // 32)
    assert plan.kv_nbytes_per_user == kv_cache("Llama-3.1-8B", 32768, dtype="q8_0").nbytes


def test_experts_are_read_as_used():
    weights = model_weights("Mixtral-8x7B-v0.1")
    assert weights.read_per_token == weights.total - weights.lookup - weights.experts * 6 // 8
    assert "mixture of experts" in fit("Mixtral-8x7B-v0.1", "H200-141GB").explain()


def test_a_tied_embedding_is_read_as_the_output_head():
    assert model_weights("SmolLM2-135M") == Weights(134_515_008, 0, 0, 1, 1)
    assert model_weights("SmolLM2-135M").read_per_token == 134_515_008


def test_unlisted_model_is_counted():
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}
    config |= {"intermediate_size": 16, "vocab_size": 10}
    layer = 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8
    assert model_weights(config).total == 2 * 10 * 8 + layer + 8
    assert model_weights(config).read_per_token == 10 * 8 + layer + 8


def test_language_model_of_a_multimodal_config_has_an_output_head():
    text = {"model_type": "qwen2_vl_text", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 10}
    untied = model_weights({"model_type": "qwen2_vl", "text_config": text})
    tied = model_weights({"model_type": "qwen2_vl", "text_config": text, "tie_word_embeddings": True})
    assert (untied.lookup, tied.lookup) == (80, 0)
    assert untied.total == tied.total + 80
    assert untied.read_per_token == tied.read_per_token


def test_gpu_table():
    for gpu in gpu_table().values():
        assert gpu.source
        assert 15 * 2**30 <= gpu.memory_nbytes <= 200 * 2**30
        assert 10**11 < gpu.bandwidth < 10**13
    with pytest.raises(LessonError, match="Did you mean H100-80GB"):
        get_gpu("H100")
    with pytest.raises(LessonError, match="decoder-only"):
        fit({"model_type": "whisper"}, "T4-16GB")
    with pytest.raises(LessonError, match="context must be at least 1"):
        fit("Llama-3.1-8B", "H100-80GB", context=0)
