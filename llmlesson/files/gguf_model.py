"""Turn the default model's GGUF file into an ordinary Hugging Face folder.

transformers can read a GGUF file itself, but slowly (15–35 s at every load), and it drops this model's pre-tokenizer.
Converted once, the folder loads in seconds.

The format: the GGUF specification, ggml repository, docs/gguf.md. The order of Q and K rows: `LlamaModel.permute` in
llama.cpp's convert_hf_to_gguf.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

CONTROL = 3  # tokenizer.ggml.token_type of <|im_start|> and its like

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf_file: Path, folder: Path) -> None:
    """Write `gguf_file`, a Llama model with tied embeddings and a "smollm" tokenizer, into the existing `folder`.

    Weights are dequantized and stored as float16. Raises ValueError where the file holds another kind of model.
    """
    reader = GGUFReader(gguf_file)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    kind = (meta.get("general.architecture"), meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre"))
    if kind != ("llama", "gpt2", "smollm"):
        raise ValueError(f"expected a llama model with a gpt2 tokenizer of type smollm, got {kind}")

    write_json(folder / "config.json", model_config(meta))
    write_json(folder / "generation_config.json", special_ids(meta))
    tokenizer(meta).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", tokenizer_config(meta))
    (folder / "chat_template.jinja").write_text(meta["tokenizer.chat_template"], encoding="utf-8", newline="\n")
    save_file(weights(reader, meta), folder / "model.safetensors", metadata={"format": "pt"})
    # safetensors makes its file private, and a cache may be shared: as readable as its neighbours.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")


def model_config(meta: dict[str, Any]) -> dict[str, Any]:
    """The keys of transformers' `LlamaConfig`."""
    hidden, heads = meta["llama.embedding_length"], meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": meta["llama.context_length"],
        # GGUF stores a float32, so that 1e-05 reads as 9.999999747378752e-06.
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.7g}"),
        "rope_parameters": {"rope_theta": meta["llama.rope.freq_base"], "rope_type": "default"},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        **special_ids(meta),
    }


def special_ids(meta: dict[str, Any]) -> dict[str, int]:
    """Ids of the first, last and padding token, for config.json and generation_config.json."""
    return {
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def tokenizer(meta: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE. "smollm" splits off each digit before the byte-level step; ids depend on it ("²", "½", "٣")."""
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    left_right = (merge.split(" ") for merge in meta["tokenizer.ggml.merges"])
    vocab = {token: i for i, token in enumerate(tokens)}
    result = Tokenizer(BPE(vocab=vocab, merges=[(left, right) for left, right in left_right]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    result.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    result.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    result.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return result


def tokenizer_config(meta: dict[str, Any]) -> dict[str, Any]:
    """What transformers' `AutoTokenizer` reads beside tokenizer.json."""
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        # Takes tokenizer.json as it is. A model's own class would build its own pre-tokenizer in place of ours.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": meta["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }


def weights(reader: GGUFReader, meta: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every tensor under its Hugging Face name, float16, `[out, in]`."""
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    result = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
        part = tensor.name.split(".")[-2]
        if part in heads:
            array = unpermute(array, heads[part])
        result[hf_name(tensor.name)] = array
    return result


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's order of Q and K rows, which puts the two halves that RoPE rotates side by side.

    `[heads · head_dim, in]` to the same shape: within a head, rows 0, 2, 4, … come first, then 1, 3, 5, …
    """
    rows, width = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, width)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
