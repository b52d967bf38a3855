"""What you can give to a widget over sizes: anything that sizing reads, or an engine or its config."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any

from llmlesson.sizing import ModelSpec, resolve


def spec_of(source: Any) -> ModelSpec:
    """The layers of a model. source: as for `llmlesson.sizing.kv_cache`, or an engine, or its `config`.

    Raises LessonError if it names no model.
    """
    return resolve(readable(source))


def readable(source: Any) -> Any:
    """`source`, or its Hugging Face config where it is an engine or an engine's config (known by its fields alone:
    importing the engine would load torch)."""
    config = getattr(source, "config", source)
    if not is_dataclass(config) or not hasattr(config, "num_key_value_heads"):
        return source
    fields = asdict(config)  # type: ignore[arg-type]
    return {**fields, "_name_or_path": getattr(source, "name", fields["model_type"])}
