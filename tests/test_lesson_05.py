"""Numbers that lesson 05 states in words: they are those of the sizing package, of configs and of cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson import sizing
from llmlesson.sizing import kv_cache, model_table, model_weights

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "05_kv_cache_size.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
LLAMA_2, LLAMA_3, GIANT = "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-405B"
H100 = sizing.get_gpu("H100-80GB")


def parameters(name):
    return model_weights(name).total


def growth(name, dtype="bf16"):
    return kv_cache(name, 1, dtype=dtype).bytes_per_token


def test_models_of_step_1():
    assert f"has {parameters('SmolLM2-135M') / 1e6:.0f} million parameters" in PROSE
    assert f"Qwen2.5-0.5B has {parameters('Qwen2.5-0.5B') / 1e6:.0f} million" in PROSE
    [asked] = ["".join(cell["source"]) for cell in CELLS if cell["id"] == "predict-larger"]
    assert f"{parameters('Qwen2.5-0.5B') / parameters('SmolLM2-135M'):.1f} times as large, like the model" in asked
    assert parameters("SmolLM2-1.7B") < parameters("Qwen2.5-7B") / 4  # "less than a quarter of the parameters"
    assert growth("SmolLM2-1.7B") > 3 * growth("Qwen2.5-7B")  # "more than three times its bytes a token"
    config = model_table()["Qwen/Qwen3-0.6B"]["config"]
    implied = config["hidden_size"] // config["num_attention_heads"]
    assert f"Qwen3-0.6B states {config['head_dim']}, while `hidden_size / heads` gives {implied}" in PROSE
    fp32, bf16 = growth("SmolLM2-135M", "fp32"), growth("SmolLM2-135M")
    assert f"{fp32:,} bytes a token. Servers mostly store 16 bits, so {bf16:,}." in PROSE


def test_the_7b_models_of_step_2():
    config = model_table()[LLAMA_2]["config"]
    assert config["num_hidden_layers"] == config["num_attention_heads"] == 32
    assert config["max_position_embeddings"] == 4096
    assert "up to 4,096 tokens" in PROSE
    weights = 2 * parameters(LLAMA_2)
    assert f"Its weights take {weights / 1e9:.1f} GB in 16 bits" in PROSE
    assert 6 * 4096 * growth(LLAMA_2) < weights < 7 * 4096 * growth(LLAMA_2)  # "with seven full conversations"
    sizes = [kv_cache(LLAMA_2, tokens).nbytes / 1e9 for tokens in (1_000, 100_000, 1_000_000)]
    assert f"The article is right, for this model: {sizes[0]:.2f}, {sizes[1]:.0f} and {sizes[2]:.0f} GB." in PROSE

    four = (LLAMA_2, "mistralai/Mistral-7B-v0.3", LLAMA_3, "Qwen/Qwen2.5-7B")
    counts = [parameters(name) for name in four]
    assert f"differ by {max(counts) / min(counts) - 1:.0%}".replace("%", " %") in PROSE
    assert round(growth(LLAMA_2) / growth("Qwen2.5-7B")) == 9
    assert all(model_table()[name]["config"]["num_key_value_heads"] == 8 for name in four[1:3])
    assert all(4 * growth(name) == growth(LLAMA_2) for name in four[1:3])
    qwen = model_table()["Qwen/Qwen2.5-7B"]["config"]
    assert (qwen["num_key_value_heads"], qwen["num_attention_heads"], qwen["num_hidden_layers"]) == (4, 28, 28)
    assert all(kv_cache(name, 1).spec.max_context < 10**6 for name in four)


def test_units():
    between = H100.memory_nbytes - 80 * 10**9
    assert 5.5e9 < between < 6e9  # "almost 6 GB"
    assert between // kv_cache(LLAMA_3, 8_192).nbytes == 5


def test_the_giant_of_step_3():
    assert parameters(GIANT) / parameters(LLAMA_2) == pytest.approx(60, abs=0.5)
    weights = 2 * parameters(GIANT)
    assert f"Its weights take {weights / 1e9:.0f} GB in 16 bits" in PROSE
    assert 9 * H100.memory_nbytes < weights < 10 * H100.memory_nbytes
    assert f"{8 * 131_072 * 128 * 2:,}, and none allocated" in PROSE
    assert f"takes {kv_cache(GIANT, 131_072).nbytes / 1e9:.2f} GB, most of an H100" in PROSE


def test_where_the_formula_breaks():
    gemma = kv_cache("gemma-3-27b-it", 1_000)
    windowed = [layer for layer in gemma.per_layer if layer.kind == "sliding"]
    assert f"{len(windowed)} of its {len(gemma.per_layer)} layers look back only 1,024 tokens" in PROSE
    hybrid = kv_cache("Qwen3-Next-80B-A3B-Thinking", 1_000)
    assert sum(layer.cells > 0 for layer in hybrid.per_layer) == 12
    assert f"{hybrid.fixed_nbytes / 1e6:.1f} MB in all" in PROSE
    assert f"{34 / 64:.0%} and not 50".replace("%", " %") in PROSE
    assert f"leaves {1 - 1_000 / 8_192:.0%} of its memory empty".replace("%", " %") in PROSE


def test_how_much_a_latent_takes_is_left_for_lesson_06():
    """06 asks for it: no size of an MLA model is here, in words, code or stored outputs."""
    everything = json.dumps(CELLS, ensure_ascii=False)
    for given_away in ("DeepSeek-V3", "576 numbers", "70,272", "512 numbers"):
        assert given_away not in everything


def test_the_claims():
    claims = sizing.published_claims()
    jamba = "ai21labs/AI21-Jamba-1.5-Mini"
    assert f"has {parameters(jamba) / 1e9:.0f} billion parameters" in PROSE
    growing = [layer for layer in sizing.resolve(jamba).layers if any(layer.attentions)]
    assert f"only {len(growing)} of its {len(sizing.resolve(jamba).layers)} layers grow" in PROSE
    [full] = [claim for claim in claims if claim.config == "Qwen/Qwen3-0.6B"]
    assert full.tokens == kv_cache("Qwen3-0.6B", 1).spec.max_context
    assert 3.8 < full.right_nbytes() / (2 * parameters("Qwen3-0.6B")) < 4  # "almost four times its weights"
    first_config = [claim for claim in claims if not claim.agrees and claim.config == GIANT]
    assert len(first_config) == 3
    assert all(claim.overrides == {"num_key_value_heads": 16} for claim in first_config)


def test_the_last_questions():
    wrong, right = 2 * 80 * 8_192 * 2, 2 * 80 * 8 * 128 * 2
    assert f"= {wrong:,}." in PROSE
    assert f"= {right:,} bytes, an eighth" in PROSE
    assert wrong == 8 * right
