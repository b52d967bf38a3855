"""What the forward pass needs to know about a model, read from a Hugging Face `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.files.model_files import check_config


@dataclass(frozen=True)
class Llama3Rope:
    """Llama 3's stretching of the rotary frequencies (see `rope.inverse_frequencies`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer of the Llama family. Names are those of `config.json`."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Rope | None
    tie_word_embeddings: bool | None  # None: the config does not say, the checkpoint decides
    qkv_bias: bool  # Qwen2
    qk_norm: bool  # Qwen3
    rope_layers: tuple[bool, ...]  # SmolLM3 has layers without rotary embedding

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.num_attention_heads // self.num_key_value_heads


@dataclass(frozen=True)
class _Family:
    """What one model type adds to the common shape, and the defaults for keys that its configs may leave out."""

    max_position_embeddings: int
    num_key_value_heads: int | None = None  # None: as many as query heads
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    rope_theta: float = 10_000.0
    sliding_window: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    no_rope_interval: int | None = None


# Defaults as in the configuration classes of transformers 5.
FAMILIES = {
    "llama": _Family(2048),
    "mistral": _Family(4096 * 32, num_key_value_heads=8, sliding_window=4096),
    "qwen2": _Family(32768, num_key_value_heads=32, qkv_bias=True),
    "qwen3": _Family(32768, num_key_value_heads=32, head_dim=128, qk_norm=True),
    "smollm3": _Family(32768, num_key_value_heads=4, rope_theta=2_000_000.0, no_rope_interval=4),
}

_WHAT_WORKS = (
    "llmlesson runs dense decoder-only models of these types: "
    + ", ".join(FAMILIES)
    + " (Llama 2 and 3, Mistral, Qwen2, Qwen2.5, Qwen3, SmolLM2, SmolLM3), in fp32, fp16 or bf16 safetensors."
)


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Read a `config.json`, in its old (`rope_theta`, `rope_scaling`) or new (`rope_parameters`) spelling.

    Raises LessonError for a model whose forward pass would differ from the one in `model.py`, and for a missing key.
    """
    check_config(raw, "config.json")
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise LessonError(f"Model type {model_type!r} is not supported. {_WHAT_WORKS}")
    family = FAMILIES[model_type]
    _refuse_variants(raw, family)

    heads = _positive(raw, "num_attention_heads")
    kv_heads = _count(raw, "num_key_value_heads", family.num_key_value_heads) or heads
    hidden = _positive(raw, "hidden_size")
    layers = _positive(raw, "num_hidden_layers")
    if heads % kv_heads:
        raise LessonError(
            f"The config has {heads} query heads (num_attention_heads) and {kv_heads} key-value heads "
            "(num_key_value_heads): the first must be a multiple of the second."
        )
    head_dim = _count(raw, "head_dim", family.head_dim)
    if head_dim is None:
        if hidden % heads:
            raise LessonError(
                f"The config has no head_dim, and hidden_size {hidden} is not a multiple of {heads} heads."
            )
        head_dim = hidden // heads
    if head_dim % 2:
        raise LessonError(f"head_dim is {head_dim}: rotary embedding rotates pairs of values, so it must be even.")
    rope_theta, rope_scaling = _parse_rope(raw, family)
    return ModelConfig(
        model_type=model_type,
        vocab_size=_positive(raw, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_positive(raw, "intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=_count(raw, "max_position_embeddings", None) or family.max_position_embeddings,
        rms_norm_eps=_number(raw, "rms_norm_eps", 1e-6),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        tie_word_embeddings=_switch(raw, "tie_word_embeddings"),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        rope_layers=_parse_rope_layers(raw, family, layers),
    )


def _positive(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LessonError(f"The model's config.json needs a positive whole number for {key!r}; it has {value!r}.")
    return value


def _count(raw: Mapping[str, Any], key: str, default: int | None) -> int | None:
    """A positive whole number; None if the config says null, the class's default if the key is missing."""
    return default if key not in raw else None if raw[key] is None else _positive(raw, key)


def _number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise LessonError(f"The model's config.json needs a positive number for {key!r}; it has {value!r}.")
    return value


def _switch(raw: Mapping[str, Any], key: str) -> bool | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, bool):
        raise LessonError(f"The model's config.json needs true, false or null for {key!r}; it has {value!r}.")
    return value


def _list(raw: Mapping[str, Any], key: str) -> list[Any] | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, list):
        raise LessonError(f"The model's config.json needs a list or null for {key!r}; it has {value!r}.")
    return value


def _refuse_variants(raw: Mapping[str, Any], family: _Family) -> None:
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown method")
        raise LessonError(f"This checkpoint is quantized ({method}), which is not supported. {_WHAT_WORKS}")
    # Mistral's window is on unless the config says null; the others have a switch.
    window = raw.get("sliding_window", family.sliding_window)
    uses_window = raw.get("use_sliding_window", family.sliding_window is not None) and window is not None
    if uses_window or "sliding_attention" in (_list(raw, "layer_types") or ()):
        raise LessonError(f"This model has sliding-window attention layers, which are not supported. {_WHAT_WORKS}")
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            raise LessonError(f"This model sets {key!r}, which is not supported. {_WHAT_WORKS}")
    if raw.get("hidden_act", "silu") != "silu":
        raise LessonError(f"This model's activation is {raw['hidden_act']!r}, only 'silu' is supported. {_WHAT_WORKS}")


def _parse_rope(raw: Mapping[str, Any], family: _Family) -> tuple[float, Llama3Rope | None]:
    # New configs hold everything in rope_parameters; old ones have rope_theta, and rope_scaling (or null) beside it.
    rope = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    theta = _number({"rope_theta": family.rope_theta, **raw, **rope}, "rope_theta")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise LessonError(f"This model rotates only part of each head (partial_rotary_factor). {_WHAT_WORKS}")
    if kind == "default":
        return theta, None
    if kind == "llama3":
        for key in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
            if key not in rope:
                raise LessonError(f"The config's llama3 rope scaling lacks the key {key!r}.")
        low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
        if low >= high:
            raise LessonError(
                f"The config's llama3 rope scaling has low_freq_factor {low} and high_freq_factor {high}: the first "
                "must be smaller."
            )
        length = _positive(rope, "original_max_position_embeddings")
        return theta, Llama3Rope(_number(rope, "factor"), low, high, length)
    raise LessonError(f"Rope scaling of type {kind!r} is not supported (only 'default' and 'llama3'). {_WHAT_WORKS}")


def _parse_rope_layers(raw: Mapping[str, Any], family: _Family, layers: int) -> tuple[bool, ...]:
    if family.no_rope_interval is None:
        return (True,) * layers
    # Despite its name, a 1 in no_rope_layers means that the layer does use rope.
    flags = _list(raw, "no_rope_layers")
    if flags is None:
        interval = _count(raw, "no_rope_layer_interval", family.no_rope_interval) or family.no_rope_interval
        flags = [(layer + 1) % interval != 0 for layer in range(layers)]
    if len(flags) < layers:
        raise LessonError(f"The config's no_rope_layers lists {len(flags)} layers, but the model has {layers}.")
    return tuple(bool(flag) for flag in flags[:layers])
