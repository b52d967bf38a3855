"""Tiny models with random weights, one for each thing in which models differ."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

# Odd sizes on purpose: nothing may rely on a power of two.
COMMON = dict(
    vocab_size=131,
    hidden_size=60,
    intermediate_size=77,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=10_000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)

# name: (configuration class, what differs from COMMON)
MODELS = {
    "gqa": ("LlamaConfig", {}),
    "mha": ("LlamaConfig", dict(num_key_value_heads=6)),
    "mqa": ("LlamaConfig", dict(num_key_value_heads=1)),
    "gqa-3": ("LlamaConfig", dict(num_attention_heads=9, num_key_value_heads=3, hidden_size=90)),
    "tied": ("LlamaConfig", dict(tie_word_embeddings=True)),
    "head-dim": ("LlamaConfig", dict(head_dim=14)),
    "llama3-rope": ("LlamaConfig", dict(rope_parameters=LLAMA3_ROPE)),
    "mistral": ("MistralConfig", dict(sliding_window=None)),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", dict(head_dim=16)),
    "smollm3": ("SmolLM3Config", dict(num_hidden_layers=5, pad_token_id=0)),
}


def make(name: str, folder: Path, shard_size: str = "1GB") -> transformers.PreTrainedModel:
    """The named model in float32, as transformers computes it, and saved in `folder`."""
    config_class, changes = MODELS[name]
    config = getattr(transformers, config_class)(**{**COMMON, **changes})
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for tensor_name, tensor in model.named_parameters():
            # Norms near one, everything else large enough that a wrong term shows in the logits.
            if "norm" in tensor_name:
                tensor.normal_(1.0, 0.2)
            else:
                tensor.normal_(0.0, 0.15)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model
