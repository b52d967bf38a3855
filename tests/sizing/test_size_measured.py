"""Formula equals measurement, layer by layer: the model table, every family, and both of transformers' caches."""

from __future__ import annotations

import pytest
import size_families as families
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, DynamicCache, MllamaTextModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from llmlesson.errors import LessonError
from llmlesson.sizing import count_weights, kv_cache, measure, model_table, model_weights, resolve
from llmlesson.sizing.fields import model_types
from llmlesson.sizing.meta_device import fill_cache, size_of_cache

SHORT = 40  # tokens where transformers' reference code loops over them (Mamba, linear attention)


def assert_equal_layers(formula, measured):
    for ours, theirs in zip(formula.per_layer, measured.per_layer, strict=True):
        assert ours == theirs
    assert formula.nbytes == measured.nbytes
    assert formula.bytes_per_token == measured.bytes_per_token
    assert formula.marginal_bytes_per_token == measured.marginal_bytes_per_token
    assert formula.fixed_nbytes == measured.fixed_nbytes


def past_the_window(config) -> int:
    """Enough tokens to fill every window, or few for a model with states."""
    spec = resolve(config)
    if any(list(layer.states) for layer in spec.layers):
        return SHORT
    windows = [attention.window or 0 for layer in spec.layers for attention in layer.attentions]
    return max([*windows, SHORT]) + 13


@pytest.mark.parametrize("name", model_table())
def test_table_model_equals_its_real_cache(name):
    tokens = past_the_window(name)
    assert_equal_layers(kv_cache(name, tokens, 2, convention="hf_dynamic"), measure(name, tokens, 2))


def test_window_that_is_not_full_yet():
    assert_equal_layers(kv_cache("gemma-3-1b-it", 200, convention="hf_dynamic"), measure("gemma-3-1b-it", 200))


@pytest.mark.parametrize("tokens", [511, 512, 513])
@pytest.mark.parametrize("convention", ["hf_dynamic", "hf_static"])
def test_edge_of_the_window(tokens, convention):
    formula = kv_cache("gemma-3-270m", tokens, convention=convention)
    assert_equal_layers(formula, measure("gemma-3-270m", tokens, convention=convention))


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "gpt-oss-20b", "DeepSeek-V3", "Qwen3-Next-80B-A3B-Thinking"])
def test_static_cache(name):
    tokens = past_the_window(name)
    formula = kv_cache(name, tokens, 2, convention="hf_static")
    assert_equal_layers(formula, measure(name, tokens, 2, convention="hf_static"))


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["SmolLM2-135M", "AI21-Jamba-1.5-Mini"])
def test_other_float_types(name, dtype):
    formula = kv_cache(name, 20, dtype=dtype, convention="hf_dynamic")
    assert_equal_layers(formula, measure(name, 20, dtype=dtype))


def test_the_largest_model_at_its_full_context():
    assert measure("Llama-3.1-405B", 131_072).nbytes == 131_072 * 516_096


@pytest.mark.parametrize("model_type", families.ON_META)
def test_family_equals_its_real_cache(model_type):
    config = families.family_config(model_type)
    tokens = past_the_window(config)
    assert_equal_layers(kv_cache(config, tokens, convention="hf_dynamic"), measure(config, tokens))


@pytest.mark.parametrize("model_type", sorted(model_types()))
def test_class_defaults_are_those_of_transformers(model_type):
    """A config that says nothing but its family: as many layers of the same kinds as transformers makes."""
    if model_type == "nemotron_h":
        pytest.skip("sizing asks for the layers' order; transformers' default is a four-layer placeholder")
    if model_type in ("glm4_moe", "qwen3_omni_moe_text"):
        pytest.skip("transformers' default hidden_size doesn't divide into its heads: sizing asks for head_dim")
    cache = DynamicCache(config=CONFIG_MAPPING[model_type]())
    layers = resolve({"model_type": model_type}).layers
    assert [layer.kind in ("sliding", "chunked") for layer in layers] == cache.is_sliding
    assert [layer.kind in ("linear", "conv") for layer in layers] == cache.is_linear
    assert [layer.kind == "shared" for layer in layers] == cache.is_dummy


@pytest.mark.parametrize("model_type", families.ON_CPU)
def test_family_that_needs_data_equals_its_real_cache(model_type):
    _, sizes = families.ON_CPU[model_type]
    config = CONFIG_MAPPING[model_type].from_dict({"model_type": model_type, **sizes})
    torch.manual_seed(0)
    if model_type in ("bart", "t5", "whisper"):
        cache, tokens, cross_tokens = encoder_decoder_cache(config)
    elif model_type == "mllama_text_model":
        cache, tokens, cross_tokens = image_model_cache(config)
    else:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        cache, tokens, cross_tokens = fill_cache(model, 23, 2), 23, None
    spec = resolve({"model_type": model_type, **sizes})
    formula = kv_cache(spec, tokens, 2, "fp32", "hf_dynamic", cross_tokens=cross_tokens)
    assert_equal_layers(formula, size_of_cache(cache, spec, tokens, 2, "fp32"))


def encoder_decoder_cache(config):
    if config.model_type == "whisper":
        from transformers import WhisperForConditionalGeneration

        model = WhisperForConditionalGeneration(config).eval()
        inputs = {"input_features": torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)}
        cross_tokens = config.max_source_positions
    else:
        model = AutoModelForSeq2SeqLM.from_config(config).eval()
        cross_tokens = 11
        inputs = {"input_ids": torch.randint(3, 90, (2, cross_tokens))}
    with torch.no_grad():
        outputs = model(**inputs, decoder_input_ids=torch.randint(3, 90, (2, 7)), use_cache=True)
    return outputs.cache, 7, cross_tokens


def image_model_cache(config):
    model = MllamaTextModel(config).eval()
    mask = torch.ones(2, 1, 7, 5)
    with torch.no_grad():
        outputs = model(
            input_ids=torch.randint(1, 90, (2, 7)),
            cross_attention_states=torch.randn(2, 5, config.hidden_size),
            cross_attention_mask=mask,
            full_text_row_masked_out_mask=torch.ones(2, 1, 7, 1),
            use_cache=True,
        )
    return outputs.cache, 7, 5


HEADS = st.sampled_from([(8, 1), (8, 2), (6, 3), (4, 4), (9, 3)])


@settings(max_examples=12, deadline=None)
@given(
    heads=HEADS,
    head_dim=st.sampled_from([8, 24, 64]),
    layers=st.integers(1, 4),
    window=st.integers(2, 30),
    tokens=st.integers(1, 40),
    family=st.sampled_from(["llama", "qwen3", "mistral", "gemma3_text", "qwen2"]),
)
def test_random_config_equals_its_real_cache(heads, head_dim, layers, window, tokens, family):
    query, kv = heads
    config = {
        "model_type": family,
        "num_hidden_layers": layers,
        "num_attention_heads": query,
        "num_key_value_heads": kv,
        "head_dim": head_dim,
        "hidden_size": 144,  # all of these head counts divide it
        "intermediate_size": 32,
        "vocab_size": 50,
        "sliding_window": window,
        "use_sliding_window": True,
        "max_window_layers": 1,
        "pad_token_id": 0,
    }
    if family == "llama":  # transformers would keep a window of a family that has none
        del config["sliding_window"]
    assert_equal_layers(kv_cache(config, tokens, convention="hf_dynamic"), measure(config, tokens))


@pytest.mark.parametrize("name", model_table())
def test_recorded_parameters_are_those_of_the_meta_model(name):
    counted = count_weights(name)
    assert model_weights(name) == counted
    assert counted.total == model_table()[name]["expected"]["parameters"]


def test_what_cannot_be_measured_says_so():
    with pytest.raises(LessonError, match="keeps the model's dtype"):
        measure("SmolLM2-135M", 8, dtype="fp8")
    with pytest.raises(LessonError, match="hf_dynamic or hf_static"):
        measure("SmolLM2-135M", 8, convention="vllm")
    with pytest.raises(LessonError, match="can't be measured there"):
        measure({"model_type": "t5"}, 8)
