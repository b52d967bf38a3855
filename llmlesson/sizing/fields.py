"""Reads a Hugging Face config by canonical names: old spellings, class defaults, and where each value came from."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.sizing.specs import Value

# Spellings that older families use for the same thing. A family's own spelling (model_types.json) is tried first.
OLD_SPELLINGS = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num"),
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "max_position_embeddings": ("n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "model_max_length"),
    "sliding_window": ("attention_window_size",),
    "layer_types": ("layers_block_type",),
}
_ABSENT = object()
# Beyond these limits a config is damaged: no model comes close, and a loop over 10⁹ layers would never end.
MAX_LAYERS = 10_000
MAX_COUNT = 10**8
# What `per_layer_config` may change from layer to layer.
_PER_LAYER = ("num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window", "attention_chunk_size")


@cache
def model_types() -> dict[str, dict[str, Any]]:
    """The families that sizing knows: `model_type` -> its rules, and its config class's defaults in transformers 5.24.

    The tests compare both with the installed classes.
    """
    text = files("llmlesson.sizing").joinpath("data/model_types.json").read_text("utf-8")
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table


class Fields:
    """One decoder's config. Every value read is kept in `.values` with its origin, for `explain()`."""

    def __init__(self, config: dict[str, Any], model_type: str, where: str) -> None:
        self.config = config
        self.model_type = model_type
        self.where = where  # the name of this config in errors
        self.rules = model_types()[model_type]
        self.values: list[Value] = []
        self._cached: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """The value of `name` in the config (under any spelling), else the class default, else None."""
        if name not in self._cached:
            self._cached[name] = self._look_up(name)
        return self._cached[name]

    def _look_up(self, name: str) -> Any:
        own = self.rules.get("spellings", {}).get(name, ())
        null = False
        for spelling in (*own, name, *OLD_SPELLINGS.get(name, ())):
            value = self._at(spelling)
            if value is None:
                null = null or spelling in self.config
            elif value is not _ABSENT:
                self.values.append(Value(name, value, "config", "" if spelling == name else f"as {spelling}"))
                return value
        if null:  # the config says "none", which is different from not saying anything
            return None
        default = self.rules["defaults"].get(name)
        if default is not None:
            self.values.append(Value(name, default, "class default", f"{self.model_type}'s config class"))
        return default

    def _at(self, spelling: str) -> Any:
        """`config[spelling]`; a dot descends ("attn_config.kv_n_heads")."""
        value: Any = self.config
        for key in spelling.split("."):
            if not isinstance(value, dict) or key not in value:
                return _ABSENT
            value = value[key]
        return value

    def count(self, name: str) -> int:
        """`get(name)` as a whole number of at least 1. LessonError if it is missing or anything else."""
        value = self.get(name)
        if value is None:
            raise LessonError(
                f"{self.where} has no {name!r}, which the cache size of a {self.model_type} model depends on: add it."
            )
        return self.whole(name, value)

    def optional_count(self, name: str) -> int | None:
        return None if self.get(name) is None else self.count(name)

    def whole(self, name: str, value: object, least: int = 1) -> int:
        """`value` as a whole number. LessonError, with `name`, if it isn't one or is absurdly large."""
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not math.isfinite(number) or number != int(number) or number < least:
            raise LessonError(
                f"{self.where}: {name!r} must be a whole number of at least {least}, but it is {value!r:.60}."
            )
        most = MAX_LAYERS if name == "num_hidden_layers" else MAX_COUNT
        if number > most:
            raise LessonError(f"{self.where}: {name!r} is {value!r:.60}, but no model has more than {most:,}.")
        return int(number)

    def zero_or_more(self, name: str) -> int:
        """`get(name)` as a whole number, 0 if it is missing or null."""
        value = self.get(name)
        return 0 if value is None else self.whole(name, value, least=0)

    def flag(self, name: str) -> bool:
        """`get(name)` as a boolean, false if it is missing or null."""
        value = self.get(name)
        if value is None or isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise LessonError(f"{self.where}: {name!r} must be true or false, but it is {value!r:.60}.")

    def numbers(self, name: str) -> list[int] | None:
        """`get(name)` as a list of whole numbers of at least 0; None if it is missing or null."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise LessonError(f"{self.where}: {name!r} must be a list of numbers, but it is {value!r:.60}.")
        return [self.whole(f"{name}[{index}]", one, least=0) for index, one in enumerate(value)]

    def per_layer(self, name: str, layers: int, default: int | None = None) -> list[int]:
        """`name` for each layer: one number for all or a list of `layers` numbers, with `per_layer_config` on top."""
        value, overrides = self.get(name), self.overrides()
        if isinstance(value, list):
            if len(value) != layers:
                raise LessonError(f"{self.where}: {name!r} lists {len(value)} layers, but the model has {layers}.")
            counts = [self.whole(name, one) for one in value]
        elif value is None and all(name in overrides.get(index, {}) for index in range(layers)):
            counts = [0] * layers  # each layer has its own
        elif value is None and default is not None:
            counts = [default] * layers
        else:
            counts = [self.count(name)] * layers
        for index, changes in overrides.items():
            if changes.get(name) is not None and index < layers:
                counts[index] = self.whole(f"per_layer_config[{index}].{name}", changes[name])
        return counts

    def overrides(self) -> dict[int, dict[str, Any]]:
        """transformers 5's `per_layer_config`: layer index -> the values that differ in that layer."""
        table = self.config.get("per_layer_config")
        if table is None:
            return {}
        if not isinstance(table, dict) or not all(
            str(index).isdecimal() and isinstance(changes, dict) for index, changes in table.items()
        ):
            raise LessonError(f"{self.where}: 'per_layer_config' must map layer numbers to values.")
        return {int(index): changes for index, changes in table.items()}

    def check_overrides(self) -> None:
        """LessonError if `per_layer_config` changes a value that was read once for all layers."""
        once = {value.name for value in self.values} - set(_PER_LAYER)
        changed = sorted(once & {name for changes in self.overrides().values() for name in changes})
        if changed:
            raise LessonError(
                f"{self.where}: 'per_layer_config' changes {', '.join(changed)}, which sizing reads once for all "
                "layers. Describe the layers yourself and pass kv_cache a list of llmlesson.sizing.Layer."
            )

    def derive(self, name: str, value: Any, how: str) -> Any:
        """Note down a derived value, and return it."""
        self.values.append(Value(name, value, "derived", how))
        return value
