"""Configs as they really come: null, nested, repeated, empty, damaged. The right size, or a sentence; never a guess."""

from __future__ import annotations

import json
import math

import pytest

from llmlesson.errors import LessonError
from llmlesson.sizing import kv_cache, model_spec
from llmlesson.sizing.fields import model_types

TEXT = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64, "head_dim": 24}
LLAMA = {"model_type": "llama", **TEXT}
ROW = 2 * 2 * 24 * 2  # bytes of one token in one layer of TEXT


def kinds(config):
    return [layer.kind for layer in kv_cache(config, 5).per_layer]


@pytest.mark.parametrize("model_type", ["cohere", "cohere2", "lfm2", "jamba", "llama", "qwen2"])
def test_head_dim_of_the_config_counts(model_type):
    """hidden_size / num_attention_heads is 8 here, a third of what is stored."""
    size = kv_cache({**TEXT, "model_type": model_type, "attn_layer_period": 2, "attn_layer_offset": 0}, 5)
    rows = {layer.bytes_per_token for layer in size.per_layer if layer.kind in ("full", "sliding")}
    assert rows == {ROW}


def test_inner_width_of_mamba_counts():
    config = {"model_type": "mamba", "num_hidden_layers": 1, "hidden_size": 64}
    assert kv_cache({**config, "intermediate_size": 96}, 5).nbytes == 96 * (4 * 2 + 16 * 4)
    assert kv_cache(config, 5).nbytes == 128 * (4 * 2 + 16 * 4)


@pytest.mark.parametrize(
    "switch",
    [
        {"kv_lora_rank": None, "q_lora_rank": None, "qk_rope_head_dim": None, "qk_nope_head_dim": None},
        {"kv_lora_rank": None, "q_lora_rank": None, "qk_rope_head_dim": 0, "qk_nope_head_dim": 0, "v_head_dim": 0},
        {"use_mla": False, "kv_lora_rank": 512},
    ],
)
@pytest.mark.parametrize("model_type", ["deepseek_v2", "deepseek_v3", "minicpm3"])
def test_latent_attention_that_is_switched_off(model_type, switch):
    size = kv_cache({**TEXT, "model_type": model_type, **switch}, 5)
    assert size.bytes_per_token == 4 * ROW
    assert "Latent attention is switched off" in size.notes[0]
    derived = kv_cache({**TEXT, "model_type": model_type, **switch, "head_dim": 0}, 5)
    assert derived.bytes_per_token == 4 * ROW // 3  # 64 / 8 heads


def test_latent_attention_with_an_indexer_cannot_be_switched_off():
    with pytest.raises(LessonError, match="'kv_lora_rank' switches latent attention off"):
        kv_cache({**TEXT, "model_type": "glm_moe_dsa", "kv_lora_rank": None}, 5)


@pytest.mark.parametrize(
    "outer",
    [
        {"model_type": "llava", "text_config": LLAMA},
        {"model_type": "llava", "text_config": {**LLAMA, "model_type": None}},
        {"model_type": "llava", "text_config": TEXT},
        {"model_type": "somebody_vlm", "language_config": LLAMA, "vision_config": {"model_type": "siglip"}},
        {"model_type": "somebody_vlm", "the_llm": LLAMA, "vision_config": {"num_hidden_layers": 9}},
        {"architectures": ["Omni"], "thinker_config": {"model_type": "thinker", "text_config": LLAMA}},
        {"model_type": "somebody_speech", "decoder": LLAMA, "encoder": {"model_type": "qwen2"}},
        {**LLAMA, "draft": {"model_type": "qwen2", "num_hidden_layers": 1}},
    ],
)
def test_language_model_is_found_wherever_it_is(outer):
    size = kv_cache(outer, 5)
    assert size.bytes_per_token == 4 * ROW
    assert size.notes == ()


@pytest.mark.parametrize(
    ("outer", "message"),
    [
        ({"model_type": "pair", "one": LLAMA, "two": LLAMA}, r"holds several language models \(one, two\)"),
        ({"model_type": "llava", "brain": TEXT}, r"sizing recognizes none of its parts as a language model \(brain\)"),
        ({"model_type": "somebody_vlm", "brain": TEXT}, "'model_type' is 'somebody_vlm'"),
        ({"brain": {"model_type": "brain"}}, "has no 'model_type'"),
    ],
)
def test_language_model_that_is_not_found(outer, message):
    with pytest.raises(LessonError, match=message):
        kv_cache(outer, 5)


def test_order_of_layers_given_by_a_pattern_or_by_nothing():
    exaone = {**TEXT, "model_type": "exaone4", "num_hidden_layers": 7, "sliding_window": 9}
    local = ["sliding", "sliding", "sliding", "full", "sliding", "sliding", "full"]  # the last one is always full
    assert kinds({**exaone, "sliding_window_pattern": "LLLG"}) == local
    assert kinds({**exaone, "sliding_window_pattern": "LLLG", "layer_types": None}) == local
    assert kinds({**exaone, "layer_types": "LLLG"}) == local
    assert kinds({**exaone, "sliding_window_pattern": "LLLG", "sliding_window": None}) == ["full"] * 7
    gemma = {**TEXT, "model_type": "gemma3_text", "layer_types": None, "num_hidden_layers": 6}
    assert kinds(gemma) == ["sliding"] * 5 + ["full"]
    hybrid = {"model_type": "nemotron_h", **TEXT, "layer_types": None, "layers_block_type": ["mamba", "attention"] * 2}
    assert kinds(hybrid) == ["linear", "full"] * 2
    with pytest.raises(LessonError, match="only the letters L and G"):
        kv_cache({**exaone, "sliding_window_pattern": "LXG"}, 5)
    with pytest.raises(LessonError, match="'layer_types' must be a list"):
        kv_cache({**LLAMA, "layer_types": ""}, 5)


def test_first_spelling_that_says_something_counts():
    assert kv_cache({**LLAMA, "num_key_value_heads": None, "num_kv_heads": 4}, 5).bytes_per_token == 8 * ROW
    assert kv_cache({**LLAMA, "num_key_value_heads": None}, 5).bytes_per_token == 16 * ROW


def test_last_layer_of_gemma4_is_full_whatever_the_list_says():
    gemma = {**TEXT, "model_type": "gemma4_text", "layer_types": ["full_attention"] + ["sliding_attention"] * 3}
    assert kinds(gemma) == ["full", "sliding", "sliding", "full"]


def test_table_of_layers_that_is_empty_is_not_absent():
    """transformers leaves it empty where Gemma 4's full layers have the head_dim of the others."""
    gemma = {**TEXT, "model_type": "gemma4_text", "num_hidden_layers": 6}
    absent, empty = kv_cache(gemma, 5).per_layer, kv_cache({**gemma, "per_layer_config": {}}, 5).per_layer
    assert absent[-1].bytes_per_token == 2 * 2 * 512 * 2  # the class's global_head_dim
    assert [layer.bytes_per_token for layer in empty] == [ROW] * 6
    assert kv_cache({**gemma, "per_layer_config": None}, 5).per_layer == absent
    no_list = {**LLAMA, "layer_types": []}
    with pytest.raises(LessonError, match="'layer_types' lists 0 layers, but the model has 4"):
        kv_cache(no_list, 5)


def test_table_of_layers_may_change_windows_and_nothing_that_is_read_once():
    config = {**TEXT, "model_type": "mistral", "sliding_window": 3, "per_layer_config": {"1": {"sliding_window": 9}}}
    assert [layer.cells for layer in kv_cache(config, 20).per_layer] == [3, 9, 3, 3]
    every = {str(index): {"head_dim": 8 * (index + 1)} for index in range(4)}
    own = {key: value for key, value in LLAMA.items() if key != "head_dim"}
    rows = [layer.bytes_per_token for layer in kv_cache({**own, "per_layer_config": every}, 5).per_layer]
    assert rows == [2 * 2 * 8 * (index + 1) * 2 for index in range(4)]
    with pytest.raises(LessonError, match="'per_layer_config' changes hidden_size, which sizing reads once"):
        kv_cache({**own, "per_layer_config": {"1": {"hidden_size": 9}}}, 5)
    for broken in ({"one": {}}, {"1": 3}):
        with pytest.raises(LessonError, match="'per_layer_config' must map layer numbers"):
            kv_cache({**own, "per_layer_config": broken}, 5)


def test_window_that_is_switched_off_under_layers_that_slide():
    config = {**TEXT, "model_type": "qwen2", "sliding_window": 9, "use_sliding_window": False}
    with pytest.raises(LessonError, match="'layer_types' lists sliding layers, but 'use_sliding_window' is false"):
        kv_cache({**config, "layer_types": ["sliding_attention"] * 4}, 5)


@pytest.mark.parametrize(("flag", "window"), [(True, 4 + 1), (False, 9), (None, 9)])
def test_window_of_attention_in_both_directions(flag, window):
    """transformers' class for Gemma 3 halves it: half looks back, half ahead."""
    config = {**TEXT, "model_type": "gemma3_text", "sliding_window": 9, "use_bidirectional_attention": flag}
    assert kv_cache(config, 20).per_layer[0].cells == window


def test_layers_that_share_an_indexer_keep_no_index_keys():
    glm = {"model_type": "glm_moe_dsa", "num_hidden_layers": 4}
    latent, index = (512 + 64) * 2, 128 * 2
    for config in (
        {"indexer_types": ["full", "shared", "shared", "full"]},
        {"index_topk_pattern": "FSSF"},
        {"index_topk_freq": 3, "index_skip_topk_offset": 1},
    ):
        rows = [layer.bytes_per_token for layer in kv_cache({**glm, **config}, 5).per_layer]
        assert rows == [latent + index, latent, latent, latent + index]
    assert kv_cache(glm, 5).bytes_per_token == 4 * (latent + index)
    with pytest.raises(LessonError, match="'indexer_types' must name 'full' or 'shared' for each of 4 layers"):
        kv_cache({**glm, "indexer_types": ["full"]}, 5)


@pytest.mark.parametrize(
    ("model_type", "name", "value", "message"),
    [
        ("llama", "num_hidden_layers", 10**9, "'num_hidden_layers' must be a whole number from 0 to 10,000"),
        ("t5", "num_decoder_layers", 10**9, "'num_hidden_layers' is 1000000000, but no model has more than 10,000"),
        ("mistral", "sliding_window", 10**12, "'sliding_window' is 1000000000000, but no model has more than"),
        ("mistral", "sliding_window", math.nan, "'sliding_window' must be a whole number of at least 0, but it is nan"),
        ("mistral", "sliding_window", math.inf, "but it is inf"),
        ("mistral", "sliding_window", "16", "but it is '16'"),
        ("llama4_text", "attention_chunk_size", True, "at least 1, but it is True"),
        ("llama", "head_dim", math.nan, "'head_dim' must be a whole number, not nan"),
        ("llama", "head_dim", 0, "'head_dim' must be a whole number of at least 1, but it is 0"),
        ("llama", "head_dim", {}, "not {}"),
        ("mamba", "expand", math.inf, "'expand' must be a number above 0, but it is inf"),
        ("qwen2", "use_sliding_window", "no", "'use_sliding_window' must be true or false, but it is 'no'"),
        ("bamba", "attn_layer_indices", 3, "'attn_layer_indices' must be a list of numbers, but it is 3"),
        ("llama4_text", "no_rope_layers", [1], "'no_rope_layers' lists 1 layers, but the model has 4"),
    ],
)
def test_value_that_no_model_has(model_type, name, value, message):
    config = json.loads(json.dumps({**TEXT, "model_type": model_type, name: value}))  # Python's JSON has NaN
    with pytest.raises(LessonError, match=message):
        kv_cache(config, 5)


JUNK = (None, "x", "", [], [1], ["full_attention"], {}, math.nan, math.inf, -1, 0, 1.5, True, 10**12, [math.nan], [[]])


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_no_junk_in_a_field_is_a_raw_error(junk):
    """Any junk in any field that a family's rule reads: a size in whole bytes, or a LessonError."""
    for model_type in model_types():
        try:
            names = {value.name for value in model_spec({"model_type": model_type}).values} - {"layers", "inner"}
        except LessonError:
            names = {"num_hidden_layers", "layer_types", "hybrid_override_pattern"}
        spellings = model_types()[model_type].get("spellings", {})
        names |= {spelling for name in names for spelling in spellings.get(name, ()) if "." not in spelling}
        for name in sorted(names | {"layer_types", "per_layer_config", "torch_dtype"}):
            try:
                size = kv_cache({"model_type": model_type, "num_hidden_layers": 2, name: junk}, 5, cross_tokens=5)
            except LessonError as error:
                said = str(error)
            else:
                said = size.explain()
                assert isinstance(size.nbytes, int)
                assert size.nbytes >= 0
            assert "{'" not in said
