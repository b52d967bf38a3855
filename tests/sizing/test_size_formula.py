"""Sizes worked out by hand, engine by engine, and the numbers that the model table states."""

from __future__ import annotations

import json

import pytest

from llmlesson.errors import LessonError
from llmlesson.sizing import (
    CONVENTIONS,
    Attention,
    Layer,
    State,
    get_convention,
    kv_cache,
    max_sequences,
    max_tokens,
    model_table,
    resolve,
)
from llmlesson.sizing.fields import model_types
from llmlesson.sizing.units import both_units, parse_tokens

LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 64}
SLIDING = [Layer("sliding", (Attention(4, 16, 16, window=100),))]
CHUNKED = [Layer("chunked", (Attention(4, 16, 16, window=100, chunked=True),))]
MAMBA = [Layer("linear", (State("conv", (64, 4), conv=True), State("ssm", (64, 16), dtype="fp32")))]
CELL = 4 * 2 * 16 * 2  # bytes of one token in SLIDING and CHUNKED


@pytest.mark.parametrize("name", model_table())
def test_table_states_what_the_formula_gives(name):
    expected = model_table()[name]["expected"]
    size = kv_cache(name, 1)
    assert size.bytes_per_token == expected["kv_bytes_per_token_bf16"]
    assert size.marginal_bytes_per_token == expected["marginal_bytes_per_token_beyond_window"]
    assert size.fixed_nbytes == expected["fixed_state_bytes_per_sequence"]
    assert model_table()[name]["source"]


# Where naive calculators go wrong: each family at 128 Ki tokens, worked out from its config by hand.
@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("Llama-2-7b-hf", 131072 * 32 * 2 * 32 * 128 * 2),  # MHA
        ("Qwen3-0.6B", 131072 * 28 * 2 * 8 * 128 * 2),  # head_dim 128, not 1024 / 16 = 64
        ("Qwen2.5-7B", 131072 * 28 * 2 * 4 * 128 * 2),  # a window that use_sliding_window turns off
        ("gemma-3-1b-it", (4 * 131072 + 22 * 512) * 2 * 1 * 256 * 2),  # MQA, 5 of 6 layers slide
        ("Phi-3-mini-4k-instruct", 32 * 2047 * 2 * 32 * 96 * 2),  # every layer slides
        ("DeepSeek-V3", 131072 * 61 * (512 + 64) * 2),  # one latent, no factor 2
        ("AI21-Jamba-1.5-Mini", 131072 * 4 * 2 * 8 * 128 * 2 + 28 * (8192 * 4 * 2 + 8192 * 16 * 4)),  # hybrid
        ("gpt-oss-20b", (12 * 131072 + 12 * 128) * 2 * 8 * 64 * 2),  # head_dim 64, not 2880 / 64 = 45
    ],
)
def test_families_that_calculators_get_wrong(name, nbytes):
    assert kv_cache(name, 131072).nbytes == nbytes


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [
        ("fp32", 4),
        ("float32", 4),
        ("torch.bfloat16", 2),
        ("fp16", 2),
        ("fp8", 1),
        ("int8", 1),
        ("q8_0", 34 / 32),
        ("q4_0", 18 / 32),
        ("nvfp4", 9 / 16),
    ],
)
def test_dtypes(dtype, nbytes):
    assert kv_cache("Llama-3.1-8B", 1000, dtype=dtype).nbytes == 1000 * 65536 * nbytes


@pytest.mark.parametrize(
    ("convention", "tokens", "cells"),
    [
        ("ideal", 99, 99),
        ("ideal", 5000, 100),
        ("hf_dynamic", 99, 99),
        ("hf_dynamic", 5000, 99),  # a step sees the window's last 99, and itself
        ("hf_static", 50, 50),
        ("hf_static", 5000, 100),
        ("vllm", 50, 64 + 16),  # 4 blocks, and one for a window that begins inside a block
        ("vllm", 5000, 2160 + 16),  # 100 - 1 + 2048 = 2147, rounded up to blocks
        ("llama_cpp", 50, 256),
        ("llama_cpp", 5000, 768),  # 100 + 512, padded to 256
    ],
)
def test_cells_of_a_sliding_window(convention, tokens, cells):
    size = kv_cache(SLIDING, tokens, 3, convention=convention)
    assert size.per_layer[0].cells == cells
    assert size.nbytes == 3 * cells * CELL


@pytest.mark.parametrize(
    ("convention", "cells"),
    # A window of 1 keeps the new token alone, but transformers' slice [-1 + 1:] keeps everything.
    [("ideal", 1), ("hf_dynamic", 5000), ("hf_static", 1), ("vllm", 2048 + 16), ("llama_cpp", 768)],
)
def test_window_of_one_token(convention, cells):
    one = [Layer("sliding", (Attention(4, 16, 16, window=1),))]
    assert kv_cache(one, 5000, convention=convention).nbytes == cells * CELL


def test_window_of_two_tokens_is_cut_by_transformers_too():
    two = [Layer("sliding", (Attention(4, 16, 16, window=2),))]
    assert kv_cache(two, 5000, convention="hf_dynamic").per_layer[0].cells == 1


@pytest.mark.parametrize(
    ("convention", "cells"), [("ideal", 100), ("hf_dynamic", 99), ("vllm", 2160), ("llama_cpp", 768)]
)
def test_cells_of_a_chunk(convention, cells):
    assert kv_cache(CHUNKED, 5000, convention=convention).nbytes == cells * CELL


@pytest.mark.parametrize(("convention", "tokens"), [("ideal", 1000), ("vllm", 1008), ("llama_cpp", 1024)])
def test_full_attention_is_rounded_up(convention, tokens):
    assert kv_cache("Llama-3.1-8B", 1000, convention=convention).nbytes == tokens * 131072


@pytest.mark.parametrize(
    ("convention", "dtype", "nbytes"),
    [
        ("ideal", "bf16", 64 * 4 * 2 + 64 * 16 * 4),
        ("hf_dynamic", "fp32", 64 * 4 * 4 + 64 * 16 * 4),
        ("ideal", "fp8", 64 * 4 * 2 + 64 * 16 * 4),  # the cache is quantised, the states are not
        ("vllm", "q8_0", 64 * 3 * 2 + 64 * 16 * 2),
        ("vllm", "bf16", 64 * 3 * 2 + 64 * 16 * 2),  # one column fewer, all in the model's dtype
        ("llama_cpp", "bf16", 64 * 3 * 4 + 64 * 16 * 4),
    ],
)
def test_states(convention, dtype, nbytes):
    size = kv_cache(MAMBA, 777, 5, dtype, convention)
    assert size.nbytes == size.fixed_nbytes == 5 * nbytes
    assert size.bytes_per_token == size.marginal_bytes_per_token == 0


@pytest.mark.parametrize(
    ("own", "dtype", "nbytes"),
    [
        ("float32", "fp8", 4),
        ("torch.float32", "q8_0", 4),
        ("bfloat16", "fp8", 2),
        (None, "fp8", 2),
        ("float32", "bf16", 2),  # the model is asked for in bf16
        ("bfloat16", "fp32", 4),
    ],
)
def test_states_in_the_dtype_that_the_model_computes_in(own, dtype, nbytes):
    config = {"model_type": "lfm2", "num_hidden_layers": 1, "hidden_size": 64, "full_attn_idxs": [], "dtype": own}
    assert kv_cache(config, 9, dtype=dtype).nbytes == 64 * 3 * nbytes
    assert kv_cache({**config, "dtype": None, "torch_dtype": own}, 9, dtype=dtype).nbytes == 64 * 3 * nbytes


def test_every_convention_states_its_rule_and_source():
    assert CONVENTIONS == ("ideal", "hf_dynamic", "hf_static", "vllm", "llama_cpp")
    for name in CONVENTIONS:
        assert get_convention(name).rule
        assert get_convention(name).source


@pytest.mark.parametrize(("heads", "tp"), [(8, 3), (8, 12), (4, 6), (2, 3), (6, 4)])
def test_ranks_that_cannot_share_the_heads(heads, tp):
    with pytest.raises(LessonError, match=f"tp={tp} doesn't divide {heads} KV heads"):
        kv_cache([Layer("full", (Attention(heads, 16, 16),))], 5, tp=tp)


def test_tensor_parallel_shares_heads_and_copies_what_it_cannot_share():
    whole = kv_cache("Llama-3.1-8B", 100).nbytes
    assert kv_cache("Llama-3.1-8B", 100, tp=4).nbytes == whole // 4
    assert kv_cache("Llama-3.1-8B", 100, tp=16).nbytes == whole // 8  # 8 heads: pairs of ranks hold the same one
    assert kv_cache("gemma-3-1b-it", 100, tp=4).nbytes == kv_cache("gemma-3-1b-it", 100).nbytes  # MQA
    assert kv_cache("DeepSeek-V3", 100, tp=8).nbytes == kv_cache("DeepSeek-V3", 100).nbytes  # MLA
    assert kv_cache("Llama-3.1-8B", 100, tp=8).nbytes == whole // 8
    assert kv_cache(MAMBA, 1, tp=4).nbytes * 4 == kv_cache(MAMBA, 1).nbytes
    with pytest.raises(LessonError, match="tp=3 doesn't divide 8 KV heads"):
        kv_cache("Llama-3.1-8B", 100, tp=3)


def test_cross_attention_is_fixed():
    config = {"model_type": "t5", "d_model": 64, "d_kv": 24, "num_heads": 4, "num_layers": 9, "num_decoder_layers": 3}
    size = kv_cache(config, 10, 2, cross_tokens=50)
    per_token = 3 * 2 * 4 * 24 * 2
    assert size.bytes_per_token == per_token
    assert size.fixed_nbytes == 2 * 50 * per_token
    assert size.nbytes == 2 * (10 + 50) * per_token
    with pytest.raises(LessonError, match="give cross_tokens"):
        kv_cache(config, 10)
    assert kv_cache({"model_type": "whisper"}, 10).cross_tokens == 1500


def test_layers_that_share_keep_nothing():
    config = {"model_type": "gemma3n_text", "num_hidden_layers": 10, "num_kv_shared_layers": 4}
    kinds = [layer.kind for layer in kv_cache(config, 2000).per_layer]
    assert kinds == ["sliding"] * 4 + ["full"] + ["sliding"] + ["shared"] * 4
    assert sum(layer.nbytes for layer in kv_cache(config, 2000).per_layer[6:]) == 0


def test_heads_can_differ_by_layer():
    listed = kv_cache({**LLAMA, "num_key_value_heads": [8, 2]}, 10)
    overridden = kv_cache(
        {**LLAMA, "num_key_value_heads": 8, "per_layer_config": {"1": {"num_key_value_heads": 2}}}, 10
    )
    assert [layer.bytes_per_token for layer in listed.per_layer] == [2 * 8 * 8 * 2, 2 * 2 * 8 * 2]
    assert listed.per_layer == overridden.per_layer


def test_old_spellings_and_nested_configs():
    old = {"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 32}
    new = {"model_type": "gpt2", "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}
    assert kv_cache(old, 5).nbytes == kv_cache(new, 5).nbytes == 5 * 3 * 2 * 32 * 2
    wrapped = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 6}, "vision_config": {"hidden_size": 9}}
    assert [layer.kind for layer in kv_cache(wrapped, 5).per_layer] == ["sliding"] * 5 + ["full"]


def test_inverse_is_the_largest_that_fits():
    budget = 10**9
    tokens = max_tokens("gemma-3-27b-it", budget, batch=2)
    assert kv_cache("gemma-3-27b-it", tokens, 2).nbytes <= budget < kv_cache("gemma-3-27b-it", tokens + 1, 2).nbytes
    users = max_sequences("Llama-3.1-8B", 1000, budget, "fp8", "vllm")
    assert users == budget // kv_cache("Llama-3.1-8B", 1000, 1, "fp8", "vllm").nbytes
    assert max_tokens("Llama-3.1-8B", 131071) == max_sequences("Llama-3.1-8B", 8, 0) == 0
    assert max_tokens("Llama-3.1-8B", 131072) == 1
    assert max_tokens("Phi-3-mini-4k-instruct", budget) == 10**9  # windows only: it never fills more
    with pytest.raises(LessonError, match="budget"):
        max_tokens("Llama-3.1-8B", -1)


def test_explain_shows_the_arithmetic_and_where_values_come_from():
    config = {"model_type": "mistral", "num_hidden_layers": 4, "num_attention_heads": 32, "hidden_size": 4096}
    text = kv_cache(config, 1000, 2).explain()
    assert "8 heads × 128 values × 1,000 cells × 2 sequences × 2 bytes = 4,096,000" in text
    assert "num_hidden_layers" in text
    assert "(config)" in text
    assert "(class default: mistral's config class)" in text
    assert "(derived: hidden_size / num_attention_heads)" in text
    assert "32,768,000 bytes = 0.0328 GB (10⁹) = 0.0305 GiB (2³⁰)" in text
    assert get_convention("ideal").rule in text


@pytest.mark.parametrize("name", model_table())
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_explain_adds_up(name, convention):
    """The lines of the explanation sum to the total."""
    size = kv_cache(name, 3000, 2, convention=convention)
    lines = size.explain().splitlines()
    totals = [
        int(line.rsplit("= ", 1)[1].removesuffix(" bytes").replace(",", "")) for line in lines if "a layer × " in line
    ]
    assert sum(totals) == size.nbytes


def test_notes_speak_up():
    longer = {**LLAMA, "model_type": "phi3", "sliding_window": 5000, "max_position_embeddings": 4096}
    assert "The window (5,000) is larger than the model's context (4,096)" in kv_cache(longer, 5).notes[0]
    assert "more than the model's context" in kv_cache("gpt2", 2000).notes[0]
    assert (
        "doesn't give num_attention_heads = 32, hidden_size = 4096"
        in kv_cache({"model_type": "llama", "num_hidden_layers": 2}, 5).notes[0]
    )
    assert "'sliding_window' is 9, but llama models have none" in kv_cache({**LLAMA, "sliding_window": 9}, 5).notes[0]
    assert kv_cache({**LLAMA, "max_position_embeddings": -1}, 5).notes == ()
    assert kv_cache("gpt2", 1000).notes == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mystery"}, "'model_type' is 'mystery'"),
        ({"model_type": None}, "has no 'model_type'"),
        ({"layer_types": ["full_attention", "quantum"]}, r"'layer_types'\[1\] is 'quantum'"),
        ({"layer_types": ["full_attention"]}, "lists 1 layers, but the model has 2"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "knows no state for model_type 'llama'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "has no 'sliding_window'"),
        ({"num_key_value_heads": 3}, "'num_key_value_heads' is 3, which doesn't divide 'num_attention_heads', 8"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "Add 'head_dim'"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' must be a whole number of at least 1, but it is 0"),
        ({"num_hidden_layers": "two"}, "not 'two'"),
        ({"num_key_value_heads": [8]}, "lists 1 layers, but the model has 2"),
        ({"model_type": "nemotron_h"}, "needs 'layers_block_type'"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 2}, "leaves some kind of layer none to share with"),
    ],
)
def test_bad_config_is_one_sentence(change, message):
    with pytest.raises(LessonError, match=message) as caught:
        kv_cache({**LLAMA, **change}, 10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(tokens=0), "tokens must be at least 1, but it is 0"),
        (dict(tokens=-4), "tokens must be at least 1"),
        (dict(tokens=10**12), "tokens must be at most 1,000,000,000"),
        (dict(tokens=1.5), "tokens must be a whole number"),
        (dict(tokens=True), "tokens must be a whole number"),
        (dict(tokens=1, batch=0), "batch must be at least 1"),
        (dict(tokens=1, dtype="int3"), "'int3' is not a dtype"),
        (dict(tokens=1, convention="mine"), "'mine' is not a convention"),
        (dict(tokens=1, tp=0), "tp must be at least 1"),
    ],
)
def test_bad_argument_is_one_sentence(arguments, message):
    with pytest.raises(LessonError, match=message):
        kv_cache("SmolLM2-135M", **arguments)


def test_blocks_must_divide_a_row():
    with pytest.raises(LessonError, match="q8_0 stores blocks of 32 values, and a token's keys has 24"):
        kv_cache([Layer("full", (Attention(1, 24, 24),))], 4, dtype="q8_0")


def test_what_names_a_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    expected = kv_cache(LLAMA, 5).nbytes
    assert kv_cache(tmp_path, 5).nbytes == kv_cache(tmp_path / "config.json", 5).nbytes == expected
    assert kv_cache(resolve(LLAMA), 5).nbytes == expected
    assert kv_cache("SMOLLM2-135m", 1).nbytes == kv_cache("HuggingFaceTB/SmolLM2-135M", 1).nbytes
    (tmp_path / "text.json").write_text("not JSON")
    (tmp_path / "list.json").write_text("[1]")
    for wrong, message in (
        (tmp_path / "text.json", "is not valid JSON"),
        (tmp_path / "list.json", "must hold a JSON object"),
        (tmp_path / "none.json", "Can't read"),
        ("smolm2-135m", "Did you mean smollm2-135m"),
        (7, "not by 7"),
        ([], "must hold llmlesson.sizing.Layer"),
    ):
        with pytest.raises(LessonError, match=message):
            kv_cache(wrong, 5)


def test_transformers_config_is_taken():
    from transformers import LlamaConfig

    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8, hidden_size=64)
    assert kv_cache(config, 5).nbytes == kv_cache(LLAMA, 5).nbytes


def test_a_hub_model_is_fetched_once_and_then_read_offline(monkeypatch, tmp_path):
    import huggingface_hub

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(tmp_path / "config.json"))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("asked the network"))
    assert kv_cache("some/model", 5).nbytes == kv_cache(LLAMA, 5).nbytes

    def unreachable(*_, **__):
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    with pytest.raises(LessonError, match="can't be reached"):
        kv_cache("some/model", 5)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("4096", 4096), ("4,096", 4096), ("1k", 1000), ("128K", 128000), ("128Ki", 131072), ("1M", 10**6), ("1.5k", 1500)],
)
def test_numbers_of_tokens(text, tokens):
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "12q", "1.0001k", "-5", "1e3", "0", "5G"])
def test_no_number_of_tokens(text):
    with pytest.raises(LessonError):
        parse_tokens(text)


def test_units_are_both_shown():
    assert both_units(2**30) == "1.07 GB = 1.00 GiB"
    assert both_units(57344) == "57.34 KB = 56.00 KiB"


def test_every_family_names_a_rule():
    from llmlesson.sizing.layer_types import RULES

    assert {entry["layers"] for entry in model_types().values()} == set(RULES)
