"""One config for each family that sizing knows, to be measured: mostly the class's defaults, with fewer layers."""

from __future__ import annotations

from typing import Any

from llmlesson.sizing.fields import model_types

MOE = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
LAYERS = {"num_hidden_layers": 6}

# What a family's defaults lack or get wrong, so that transformers itself can't run them, or where the layers are.
CHANGES: dict[str, dict[str, Any]] = {
    "bamba": {**LAYERS, "attn_layer_indices": [2, 5]},
    "deepseek_v2": {**LAYERS, **MOE, "moe_intermediate_size": 64},
    "dots1": {**LAYERS, **MOE, "n_shared_experts": 1, "moe_intermediate_size": 64, "max_window_layers": 3},
    "glm4_moe": {**LAYERS, "head_dim": 128},
    "gemma4_text": {
        "num_hidden_layers": 8,
        "num_kv_shared_layers": 2,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 2,
    },
    "granitemoehybrid": {**LAYERS, "layer_types": ["mamba", "attention"] * 3},
    "hunyuan_v1_dense": {**LAYERS, "head_dim": 128},
    "hunyuan_v1_moe": {**LAYERS, "head_dim": 128, "num_experts": 2, "moe_topk": 1},
    "jamba": {"num_hidden_layers": 6},
    "lfm2": {**LAYERS, "full_attn_idxs": [1, 4]},
    "lfm2_moe": {**LAYERS, "layer_types": ["conv", "full_attention", "conv"] * 2},
    "ministral": {**LAYERS, "head_dim": 128},
    "mixtral": {**LAYERS, "sliding_window": 9},
    "nemotron": {**LAYERS, "num_key_value_heads": 8},
    "nemotron_h": {"hybrid_override_pattern": "M-M*E"},
    "olmo3": {**LAYERS, "sliding_window": 16},
    "phi3": {**LAYERS, "sliding_window": 9},
    "qwen2": {**LAYERS, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2},
    "qwen2_moe": {**LAYERS, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 3},
    "qwen3_moe": {**LAYERS, "use_sliding_window": True, "sliding_window": 9, "head_dim": 128},
    "smollm3": {"num_hidden_layers": 8, "use_sliding_window": True, "sliding_window": 9},
    "starcoder2": {**LAYERS, "sliding_window": 9},
    "zamba2": {"num_hidden_layers": 54},
}

# Families that can't run on the meta device, and why. They are measured on the CPU with these tiny sizes instead.
TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 99,
}
ON_CPU: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": (
        "an encoder-decoder, and its mask reads values (Tensor.item)",
        {"d_model": 64, "encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 2, "vocab_size": 99}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 1},
    ),
    "dbrx": (
        "its experts count non-zero values (torch.nonzero)",
        {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "vocab_size": 99}
        | {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 500000.0}}
        | {"ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 32}},
    ),
    "gemma3n_text": (
        "its sparsity threshold reads a value (Tensor.item)",
        {**TINY, "num_hidden_layers": 10, "num_kv_shared_layers": 4, "sliding_window": 9, "head_dim": 16}
        | {"vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 8},
    ),
    "longcat_flash": (
        "its router counts non-zero values (torch.nonzero)",
        {"hidden_size": 64, "ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "num_layers": 2, "vocab_size": 99}
        | {
            "num_attention_heads": 4,
            "kv_lora_rank": 24,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "n_routed_experts": 4,
        }
        | {"qk_nope_head_dim": 8, "v_head_dim": 8, "head_dim": 8, "moe_topk": 2, "zero_expert_num": 1},
    ),
    "mllama_text_model": (
        "its cross-attention layers need image states",
        {**TINY, "num_hidden_layers": 4, "cross_attention_layers": [1, 3], "vocab_size": 99, "pad_token_id": 0},
    ),
    "t5": (
        "an encoder-decoder, and its mask reads values (Tensor.item)",
        {
            "d_model": 64,
            "d_kv": 24,
            "num_heads": 4,
            "num_layers": 1,
            "num_decoder_layers": 3,
            "d_ff": 64,
            "vocab_size": 99,
        },
    ),
    "whisper": (
        "an encoder-decoder that reads audio",
        {"d_model": 64, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "vocab_size": 99}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 20}
        | {"num_mel_bins": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    ),
}


def _branch(model_type: str) -> str:
    """Families of one branch have the same rules, and differ in their defaults alone."""
    rules = model_types()[model_type]
    return repr({key: value for key, value in rules.items() if key not in ("defaults", "spellings")})


# One family for each branch of the rules, and those that need more than defaults: size_fuzz.py looks at all of them.
_DECODERS = sorted(  # BioGPT's mask reads values, as those of encoder-decoders do
    (
        name
        for name, rules in model_types().items()
        if name not in (*ON_CPU, "biogpt") and rules.get("cache") != "encoder_decoder"
    ),
    reverse=True,
)
_FIRST = {_branch(model_type): model_type for model_type in _DECODERS}
ON_META = sorted({*_FIRST.values(), *CHANGES})


def family_config(model_type: str) -> dict[str, Any]:
    """A config of this family that transformers can run on the meta device."""
    return {"model_type": model_type, **CHANGES.get(model_type, LAYERS)}


# For size_fuzz.py. Fields that a family needs besides those it draws.
FUZZ: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 2]},
    "kimi_linear": {"num_hidden_layers": 6},
    "zamba2": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2}
    | {"n_mamba_heads": 4, "mamba_headdim": 24, "num_mem_blocks": 1},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 500000.0}, "num_key_value_heads": 2}
    | {"ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 32}},
}
# Families whose class lists no layer types by itself, and what may stand there.
FUZZ_LAYER_TYPES: dict[str, tuple[str, ...]] = {
    "lfm2_moe": ("conv", "full_attention"),
    "nemotron_h": ("linear_attention", "full_attention", "moe"),
}
