"""Hugging Face config -> `ModelSpec`: what each layer stores, and the values that decide it."""

from __future__ import annotations

from typing import Any

from llmlesson.errors import LessonError
from llmlesson.sizing.decoder import decoder_config
from llmlesson.sizing.fields import Fields
from llmlesson.sizing.layer_types import layer_kinds, own_indexers
from llmlesson.sizing.specs import Attention, Layer, ModelSpec, Part
from llmlesson.sizing.states import layer_states


def model_spec(config: dict[str, Any], name: str = "the config") -> ModelSpec:
    """The layers of the decoder that `config` (a parsed config.json) describes.

    Raises LessonError, with the key, for an unknown `model_type` or layer type, a missing key or values that don't fit.
    """
    text, model_type = decoder_config(config, name)
    fields = Fields(text, model_type, name)
    kinds = layer_kinds(fields)
    fields.derive("layers", len(kinds), "one entry a layer")
    if fields.rules.get("cache") == "longcat":  # each layer holds two attentions, each with a cache of its own
        kinds = [kind for kind in kinds for _ in range(2)]
    layers = _with_sharing(fields, _layers(fields, kinds), kinds)
    fields.check_overrides()
    notes = [*_assumed(fields), *_ignored(fields), *_without_latent(fields)]
    max_context = fields.get("max_position_embeddings")
    if not isinstance(max_context, int) or max_context < 1:
        max_context = None  # only notes depend on it; some configs say -1 for "no limit"
    widest = max((a.window or 0 for layer in layers for a in layer.attentions), default=0)
    if max_context is not None and widest > max_context:
        notes.append(
            f"The window ({widest:,}) is larger than the model's context ({max_context:,}): it never fills, so these "
            "layers grow like full attention."
        )
    dtype = text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    cross = fields.optional_count("max_source_positions") if fields.rules.get("cross_fixed") else None
    return ModelSpec(
        name, model_type, tuple(layers), tuple(fields.values), max_context, dtype and str(dtype), cross, tuple(notes)
    )


def _assumed(fields: Fields) -> list[str]:
    """A note if a dimension of the model itself isn't in the config."""
    core = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    assumed = [f"{v.name} = {v.value}" for v in fields.values if v.origin == "class default" and v.name in core]
    if not assumed:
        return []
    return [
        f"{fields.where} doesn't give {', '.join(assumed)}: this is the default of {fields.model_type}'s config class."
    ]


def _ignored(fields: Fields) -> list[str]:
    """A note if the config sets a window that models of this family don't have."""
    window = fields.config.get("sliding_window")
    if fields.rules["layers"] != "full" or fields.get("layer_types") or not window:
        return []
    return [f"'sliding_window' is {window}, but {fields.model_type} models have none: every layer is sized in full."]


def _layers(fields: Fields, kinds: list[str]) -> list[Layer]:
    states = layer_states(fields) if {"linear", "conv", "hybrid"} & set(kinds) else ()
    attends = any(kind not in ("linear", "conv", "none") for kind in kinds)
    attentions = _attentions(fields, kinds) if attends else [()] * len(kinds)
    layers = []
    for kind, attention in zip(kinds, attentions, strict=True):
        if kind in ("linear", "conv"):
            layers.append(Layer(kind, states))
        elif kind == "hybrid":
            layers.append(Layer(kind, (*attention, *states)))
        elif kind == "none":
            layers.append(Layer(kind))
        else:
            layers.append(Layer(_named(kind, attention), attention))
    return layers


def _named(kind: str, parts: tuple[Part, ...]) -> str:
    """The name of a layer: "mla" for latent attention, otherwise how it attends."""
    attentions = [part for part in parts if isinstance(part, Attention)]
    if attentions and attentions[0].latent:
        return "mla"
    return "cross" if attentions and all(part.cross for part in attentions) else kind


def _attentions(fields: Fields, kinds: list[str]) -> list[tuple[Part, ...]]:
    if fields.rules.get("cache") in ("mla", "longcat") and not _latent_is_off(fields):
        return _latent_attentions(fields, kinds)
    heads = _heads_per_layer(fields, kinds)
    windows = _windows(fields, kinds)
    cross_layers = set(fields.numbers("cross_attention_layers") or ())
    return [_by_heads(fields, i in cross_layers, window, *heads[i]) for i, window in enumerate(windows)]


def _latent_is_off(fields: Fields) -> bool:
    """Whether a model of an MLA family caches plain heads: DeepSeek-OCR's decoder, for one, has `kv_lora_rank` null."""
    off = fields.get("kv_lora_rank") in (None, 0) or fields.config.get("use_mla") is False
    if off and fields.rules["layers"] == "indexed":
        raise LessonError(
            f"{fields.where}: 'kv_lora_rank' switches latent attention off, and sizing doesn't know how a "
            f"{fields.model_type} model caches without it."
        )
    return off


def _without_latent(fields: Fields) -> list[str]:
    """A note if a family's latent attention is switched off."""
    if fields.rules.get("cache") not in ("mla", "longcat") or not _latent_is_off(fields):
        return []
    return [f"Latent attention is switched off in this {fields.model_type} config: each layer caches plain heads."]


def _latent_attentions(fields: Fields, kinds: list[str]) -> list[tuple[Part, ...]]:
    """MLA: one latent and one rope key per token, shared by all heads (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""
    latent = Attention(1, fields.count("kv_lora_rank"), fields.count("qk_rope_head_dim"), latent=True)
    parts: tuple[Part, ...] = (latent,)
    if "indexed" in kinds:  # the sparse-attention indexer also keeps one small key per token
        parts = (latent, Attention(1, fields.count("index_head_dim"), 0, latent=True))
    own = own_indexers(fields, len(kinds))
    return [parts if kind == "indexed" and own[i] else (latent,) for i, kind in enumerate(kinds)]


def _heads_per_layer(fields: Fields, kinds: list[str]) -> list[tuple[int, int]]:
    """(kv_heads, head_dim) of each layer. LessonError if the KV heads don't divide the query heads."""
    layers = len(kinds)
    heads = fields.per_layer("num_attention_heads", layers)
    kv_heads = _kv_heads(fields, heads)
    dims = _head_dims(fields, heads)
    if "global_head_dim" in fields.rules["defaults"]:
        _gemma4_global(fields, kinds, kv_heads, dims)
    for index, (query, kv) in enumerate(zip(heads, kv_heads, strict=True)):
        if query % kv:
            raise LessonError(
                f"{fields.where}: 'num_key_value_heads' is {kv}, which doesn't divide 'num_attention_heads', {query} "
                f"(layer {index}): each KV head serves an equal group of query heads."
            )
    return list(zip(kv_heads, dims, strict=True))


def _kv_heads(fields: Fields, heads: list[int]) -> list[int]:
    rule = fields.rules.get("kv", "gqa")
    if rule == "mha":
        return heads
    if rule == "multi_query":
        one = fields.flag("multi_query")
        return [fields.derive("num_key_value_heads", 1, "multi_query is on")] * len(heads) if one else heads
    if rule == "falcon" and fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        return [fields.derive("num_key_value_heads", 1, "multi_query is on")] * len(heads)
    kv_heads = fields.per_layer("num_key_value_heads", len(heads), default=0)
    if not any(kv_heads):
        fields.derive("num_key_value_heads", heads[0], "absent, so one for each attention head (MHA)")
    return [kv or query for kv, query in zip(kv_heads, heads, strict=True)]


def _head_dims(fields: Fields, heads: list[int]) -> list[int]:
    overrides = fields.overrides()
    if any("head_dim" in overrides.get(index, {}) for index in range(len(heads))):
        own = fields.get("head_dim") is not None
        return fields.per_layer("head_dim", len(heads), None if own else _derived_head_dims(fields, heads)[0])
    if not fields.rules.get("head_dim_derived") and not _no_head_dim(fields):
        return fields.per_layer("head_dim", len(heads))
    return _derived_head_dims(fields, heads)


def _no_head_dim(fields: Fields) -> bool:
    """Whether 'head_dim' is unset. 0 means unset only where latent attention is switched off, as in DeepSeek-OCR."""
    return fields.get("head_dim") is None or (
        fields.get("head_dim") == 0 and fields.rules.get("cache") in ("mla", "longcat")
    )


def _derived_head_dims(fields: Fields, heads: list[int]) -> list[int]:
    hidden = fields.count("hidden_size") * int(fields.rules.get("head_dim_factor", 1))
    how = "hidden_size / num_attention_heads" if "head_dim_factor" not in fields.rules else "2 · hidden_size / heads"
    if any(hidden % count for count in heads):
        raise LessonError(
            f"{fields.where}: 'hidden_size' gives {hidden} values for {heads[0]} heads, which doesn't divide evenly. "
            "Add 'head_dim'."
        )
    dims = [hidden // count for count in heads]
    fields.derive("head_dim", dims[0], how)
    return dims


def _gemma4_global(fields: Fields, kinds: list[str], kv_heads: list[int], dims: list[int]) -> None:
    """Gemma 4's full layers have their own head_dim, and KV heads too where keys serve as values."""
    if fields.config.get("per_layer_config") is not None:
        return  # the table decides, and if it is empty no layer differs
    dim = fields.count("global_head_dim")
    own = fields.optional_count("num_global_key_value_heads") if fields.flag("attention_k_eq_v") else None
    for index, kind in enumerate(kinds):
        if kind == "full":
            dims[index] = dim
            kv_heads[index] = own or kv_heads[index]


def _windows(fields: Fields, kinds: list[str]) -> list[tuple[int | None, bool]]:
    """(tokens that a layer's window or chunk holds, whether it is a chunk) for each layer; None: all tokens."""
    windows: list[tuple[int | None, bool]] = [(None, False)] * len(kinds)
    for kind, name in (("sliding", "sliding_window"), ("chunked", "attention_chunk_size")):
        if kind not in kinds:
            continue
        if kind == "sliding" and fields.get("use_sliding_window") is not None and not fields.flag("use_sliding_window"):
            raise LessonError(
                f"{fields.where}: 'layer_types' lists sliding layers, but 'use_sliding_window' is false. Change one."
            )
        sizes = fields.per_layer(name, len(kinds))
        if kind == "sliding" and fields.get("use_bidirectional_attention") in fields.rules.get("halves_window", ()):
            sizes = [size // 2 + 1 for size in sizes]
        windows = [(sizes[i], kind == "chunked") if kinds[i] == kind else windows[i] for i in range(len(kinds))]
    return windows


def _by_heads(
    fields: Fields, is_cross: bool, window: tuple[int | None, bool], kv_heads: int, dim: int
) -> tuple[Part, ...]:
    cross = Attention(kv_heads, dim, dim, cross=True)
    if is_cross:
        return (cross,)
    own = Attention(kv_heads, dim, dim, window=window[0], chunked=window[1])
    return (own, cross) if fields.rules.get("cache") == "encoder_decoder" else (own,)


def _with_sharing(fields: Fields, layers: list[Layer], kinds: list[str]) -> list[Layer]:
    """The last `num_kv_shared_layers` layers read the cache of an earlier layer of their kind and have none."""
    shared = fields.zero_or_more("num_kv_shared_layers")
    if not shared:
        return layers
    first = len(layers) - shared
    if first < 1 or not set(kinds[first:]) <= set(kinds[:first]):
        raise LessonError(
            f"{fields.where}: 'num_kv_shared_layers' is {shared}, which leaves some kind of layer none to share with."
        )
    return layers[:first] + [Layer("shared")] * (len(layers) - first)
