"""The kind of each layer: read from `layer_types`, or from the family's rule if that key is absent.

The rules are those of the config classes in transformers 5.24 (`models/*/configuration_*.py`); the tests compare them
with the installed classes by measuring real caches. Kinds: full, sliding, chunked, indexed, linear, conv, hybrid, none.
"""

from __future__ import annotations

from collections.abc import Callable

from llmlesson.errors import LessonError
from llmlesson.sizing.fields import Fields

KINDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "indexed_attention": "indexed",
    "deepseek_sparse_attention": "indexed",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "conv",
    "hybrid": "hybrid",
    "moe": "none",
    "mlp": "none",
}


def layer_kinds(fields: Fields) -> list[str]:
    """The kind of each layer. LessonError for an unknown layer type: it is never assumed to be full attention."""
    listed = fields.get("layer_types")
    if listed is None:
        return RULES[fields.rules["layers"]](fields)
    if isinstance(listed, str) and listed:
        return _repeated(fields, "layer_types", listed)
    if not isinstance(listed, list):
        raise LessonError(
            f"{fields.where}: 'layer_types' must be a list of one name per layer, but it is {listed!r:.60}."
        )
    layers = _layer_count(fields, len(listed))
    if len(listed) != layers:
        raise LessonError(f"{fields.where}: 'layer_types' lists {len(listed)} layers, but the model has {layers}.")
    kinds = []
    for index, name in enumerate(listed):
        if not isinstance(name, str) or name not in KINDS:
            raise LessonError(
                f"{fields.where}: 'layer_types'[{index}] is {name!r:.60}, a layer type that sizing doesn't know "
                f"(known: {', '.join(KINDS)})."
            )
        kinds.append(KINDS[name])
    if kinds and fields.rules.get("last_layer_full"):  # as in the class, whatever the list says
        kinds[-1] = "full"
    return kinds


def _layer_count(fields: Fields, listed: int) -> int:
    return listed if fields.get("num_hidden_layers") is None else fields.count("num_hidden_layers")


def _repeat(fields: Fields) -> list[str]:
    """The family's own order of L(ocal) and G(lobal) layers, over and over."""
    order = fields.rules["repeat"]
    return ["full" if order[i % len(order)] == "G" else "sliding" for i in range(fields.count("num_hidden_layers"))]


def _repeated(fields: Fields, name: str, pattern: str) -> list[str]:
    """EXAONE 4's "LLLG": L(ocal) layers slide, G(lobal) ones are full, over and over; the last layer is always full."""
    if not set(pattern) <= set("LG"):
        raise LessonError(f"{fields.where}: {name!r} is {pattern!r:.60}, but only the letters L and G are known there.")
    layers = fields.count("num_hidden_layers")
    if fields.get("sliding_window") is None:
        return ["full"] * layers
    kinds = ["full" if pattern[i % len(pattern)] == "G" else "sliding" for i in range(layers)]
    kinds[-1] = "full"
    return kinds


def _all(kind: str) -> Callable[[Fields], list[str]]:
    return lambda fields: [kind] * fields.count("num_hidden_layers")


def _window(fields: Fields) -> list[str]:
    """Every layer slides if there is a window."""
    return ["sliding" if window_in_use(fields) else "full"] * fields.count("num_hidden_layers")


def _from_layer(fields: Fields) -> list[str]:
    """The first `max_window_layers` layers are full, the rest slide."""
    first = fields.zero_or_more("max_window_layers")
    sliding = window_in_use(fields)
    return ["sliding" if sliding and i >= first else "full" for i in range(fields.count("num_hidden_layers"))]


def _even_below(fields: Fields) -> list[str]:
    """Every other layer below `max_window_layers` slides."""
    last = fields.zero_or_more("max_window_layers")
    sliding = window_in_use(fields)
    return [
        "sliding" if sliding and i % 2 == 0 and i < last else "full" for i in range(fields.count("num_hidden_layers"))
    ]


def _pattern(fields: Fields) -> list[str]:
    """Every `sliding_window_pattern`-th layer is full, the others slide."""
    pattern = fields.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return _repeated(fields, "sliding_window_pattern", pattern)
    layers, period = fields.count("num_hidden_layers"), fields.count("sliding_window_pattern")
    if fields.get("sliding_window") is None:
        return ["full"] * layers
    kinds = ["full" if (i + 1) % period == 0 else "sliding" for i in range(layers)]
    if fields.rules.get("last_layer_full"):
        kinds[-1] = "full"
    return kinds


def _no_rope(fields: Fields) -> list[str]:
    """SmolLM3: layers without rotary positions slide, if sliding windows are on."""
    sliding = window_in_use(fields)
    return ["sliding" if sliding and not rope else "full" for rope in _rope_layers(fields)]


def _chunked(fields: Fields) -> list[str]:
    """Llama 4: layers with rotary positions attend within chunks (`no_rope_layers` holds 1 for them)."""
    chunked = fields.optional_count("attention_chunk_size") is not None
    return ["chunked" if chunked and rope else "full" for rope in _rope_layers(fields)]


def _rope_layers(fields: Fields) -> list[int]:
    layers, listed = fields.count("num_hidden_layers"), fields.numbers("no_rope_layers")
    if listed:
        if len(listed) != layers:
            raise LessonError(
                f"{fields.where}: 'no_rope_layers' lists {len(listed)} layers, but the model has {layers}."
            )
        return listed
    interval = fields.count("no_rope_layer_interval")
    return [int((i + 1) % interval != 0) for i in range(layers)]


def _interval(fields: Fields) -> list[str]:
    """Every `full_attention_interval`-th layer is full attention, the others linear."""
    interval = fields.count("full_attention_interval")
    return ["linear" if (i + 1) % interval else "full" for i in range(fields.count("num_hidden_layers"))]


def _jamba(fields: Fields) -> list[str]:
    period, offset = fields.count("attn_layer_period"), fields.zero_or_more("attn_layer_offset")
    return ["full" if i % period == offset else "linear" for i in range(fields.count("num_hidden_layers"))]


def _indices(key: str, inside: str, outside: str) -> Callable[[Fields], list[str]]:
    def kinds(fields: Fields) -> list[str]:
        indices = fields.numbers(key)
        layers = fields.count("num_hidden_layers")
        if indices is None:
            return [fields.rules.get("kind_without_indices", outside)] * layers
        return [inside if i in indices else outside for i in range(layers)]

    return kinds


def _letters(fields: Fields) -> list[str]:
    """Nemotron-H: one letter per layer, M(amba), * (attention), E(xperts), - (MLP)."""
    pattern = fields.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or not pattern or not set(pattern) <= set("M*-E"):
        raise LessonError(
            f"{fields.where}: a nemotron_h model needs 'layers_block_type' or a 'hybrid_override_pattern' of the "
            f"letters M, *, E and -, but the latter is {pattern!r:.60}."
        )
    return [{"M": "linear", "*": "full"}.get(letter, "none") for letter in pattern]


def _kimi_linear(fields: Fields) -> list[str]:
    layers, full = fields.count("num_hidden_layers"), fields.numbers("full_attn_layers")
    if full is None:
        return ["full" if i and i % 4 == 0 else "linear" for i in range(layers)]
    return ["full" if i + 1 in full else "linear" for i in range(layers)]  # the config counts from 1


def _zamba2(fields: Fields) -> list[str]:
    """Zamba2's default order of 54 layers. A config with another depth has `layers_block_type`."""
    six = ["linear"] * 5 + ["hybrid"]
    kinds = ["linear", *six * 7, *["linear"] * 4, "hybrid", *["linear"] * 3, "hybrid", *["linear"] * 2]
    if fields.count("num_hidden_layers") != len(kinds):
        raise LessonError(
            f"{fields.where} has no 'layers_block_type', which says where its attention layers are: add it."
        )
    return kinds


def own_indexers(fields: Fields, layers: int) -> list[bool]:
    """Which layers keep their own index keys; the others reuse those of an earlier layer (GLM's `indexer_types`)."""
    kinds = fields.get("indexer_types") or fields.get("index_topk_pattern")
    if not fields.rules.get("shares_indexers"):
        return [True] * layers
    if kinds is None:
        every = max(fields.zero_or_more("index_topk_freq"), 1)
        offset = fields.zero_or_more("index_skip_topk_offset")
        return [max(i - offset + 1, 0) % every == 0 for i in range(layers)]
    names = [{"F": "full", "S": "shared"}.get(kind, kind) for kind in kinds] if isinstance(kinds, str | list) else []
    if len(names) != layers or not all(name in ("full", "shared") for name in names):
        raise LessonError(
            f"{fields.where}: 'indexer_types' must name 'full' or 'shared' for each of {layers} layers, but it is "
            f"{kinds!r:.60}."
        )
    return [name == "full" for name in names]


def window_in_use(fields: Fields) -> bool:
    """Whether the family's window is switched on: Qwen configs have one that `use_sliding_window` turns off."""
    switched = "use_sliding_window" in fields.rules["defaults"]
    return fields.zero_or_more("sliding_window") > 0 and not (switched and not fields.flag("use_sliding_window"))


RULES: dict[str, Callable[[Fields], list[str]]] = {
    "full": _all("full"),
    "linear": _all("linear"),
    "hybrid": _all("hybrid"),
    "indexed": _all("indexed"),
    "window": _window,
    "from_layer": _from_layer,
    "even_below": _even_below,
    "pattern": _pattern,
    "repeat": _repeat,
    "no_rope": _no_rope,
    "chunked": _chunked,
    "interval": _interval,
    "jamba": _jamba,
    "attn_indices": _indices("attn_layer_indices", "full", "linear"),
    "lfm2": _indices("full_attn_idxs", "full", "conv"),
    "letters": _letters,
    "kimi_linear": _kimi_linear,
    "zamba2": _zamba2,
}
