"""Reads a Hugging Face config by canonical names: old spellings, class defaults, and where each value came from."""

from __future__ import annotations

import json
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


@cache
def model_types() -> dict[str, dict[str, Any]]:
    """The families sizing knows: `model_type` -> its rules, and its config class's defaults in transformers 5.24.

    The tests hold both against the installed classes.
    """
    text = files("llmlesson.sizing").joinpath("data/model_types.json").read_text("utf-8")
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table


class Fields:
    """One decoder's config. Every value read is kept in `.values` with its origin, for `explain()`."""

    def __init__(self, config: dict[str, Any], model_type: str, where: str) -> None:
        self.config = config
        self.model_type = model_type
        self.where = where  # how an error names this config
        self.rules = model_types()[model_type]
        self.values: list[Value] = []
        self._cached: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """The value of `name`: the config's (under any spelling), else the class default, else None."""
        if name not in self._cached:
            self._cached[name] = self._look_up(name)
        return self._cached[name]

    def _look_up(self, name: str) -> Any:
        own = self.rules.get("spellings", {}).get(name, ())
        for spelling in (*own, name, *OLD_SPELLINGS.get(name, ())):
            value = self._at(spelling)
            if value is not _ABSENT and (value is not None or spelling in self.config):
                if value is not None:
                    self.values.append(Value(name, value, "config", "" if spelling == name else f"as {spelling}"))
                return value
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
        """`get(name)` as a whole number of at least 1. LessonError if it is missing or no such number."""
        value = self.get(name)
        if value is None:
            raise LessonError(
                f"{self.where} lacks {name!r}, which a {self.model_type} model's cache size needs: add it."
            )
        return self.whole(name, value)

    def optional_count(self, name: str) -> int | None:
        return None if self.get(name) is None else self.count(name)

    def whole(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
            raise LessonError(f"{self.where}: {name!r} must be a whole number of at least 1, and it is {value!r}.")
        return int(value)

    def per_layer(self, name: str, layers: int, default: int | None = None) -> list[int]:
        """`name` for each layer: one number for all, or a list of `layers` numbers, then `per_layer_config` on top."""
        value = self.get(name)
        if isinstance(value, list):
            if len(value) != layers:
                raise LessonError(f"{self.where}: {name!r} lists {len(value)} layers, and the model has {layers}.")
            counts = [self.whole(name, one) for one in value]
        elif value is None and default is not None:
            counts = [default] * layers
        else:
            counts = [self.count(name)] * layers
        for index, overrides in self._overrides().items():
            if name in overrides and index < layers:
                counts[index] = self.whole(f"per_layer_config[{index}].{name}", overrides[name])
        return counts

    def _overrides(self) -> dict[int, dict[str, Any]]:
        """transformers 5's `per_layer_config`: layer index -> values that differ in that layer."""
        table = self.config.get("per_layer_config") or {}
        if not isinstance(table, dict):
            raise LessonError(f"{self.where}: 'per_layer_config' must map layer indices to values.")
        return {int(index): dict(overrides) for index, overrides in table.items()}

    def derive(self, name: str, value: Any, how: str) -> Any:
        """Note a value that was worked out, and pass it through."""
        self.values.append(Value(name, value, "derived", how))
        return value
