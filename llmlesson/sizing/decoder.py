"""Which part of a config describes the language model, and which family it belongs to."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.files.model_files import check_config
from llmlesson.sizing.fields import model_types

# Where a config that describes more than a language model keeps it: transformers' names, and those of remote code.
_NESTED = (
    "text_config",
    "decoder",
    "generator",
    "decoder_config",
    "llm_config",
    "language_config",
    "language_model",
    "language_model_config",
    "lm_config",
    "text_model_config",
    "thinker_config",
)


@cache
def text_types() -> dict[str, str]:
    """Families with a second name or with towers: `model_type` -> the `model_type` of their language model.

    Used if the part that describes the language model doesn't name a known family itself. The tests compare the table
    with the installed classes.
    """
    text = files("llmlesson.sizing").joinpath("data/text_types.json").read_text("utf-8")
    table: dict[str, str] = json.loads(text)
    return table


def decoder_config(config: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The part of `config` that describes the language model, and its family. Unknown family: LessonError."""
    if not isinstance(config, dict):
        raise LessonError(f"{name} must hold a JSON object, not a {type(config).__name__}.")
    check_config(config, name)
    for _ in range(4):  # a thinker inside an omni model inside …
        nested = _nested(config, name)
        if nested is None:
            break
        outer, config = str(config.get("model_type")), config[nested]
        if config.get("model_type") is None:
            config = {**config, "model_type": text_types().get(outer)}
        check_config(config, name)
    model_type = config.get("model_type")
    if model_type is None:
        raise LessonError(f"{name} has no 'model_type', which says how the model's layers cache: add it.")
    model_type = text_types().get(str(model_type), str(model_type))
    if model_type not in model_types():
        raise LessonError(
            f"{name}: 'model_type' is {model_type!r:.60}, a family that sizing doesn't know, and it doesn't guess. "
            "Describe the layers yourself and pass kv_cache a list of llmlesson.sizing.Layer."
        )
    return config, model_type


def _nested(config: dict[str, Any], name: str) -> str | None:
    """The key under which `config` holds its language model; None if it describes one itself."""
    parts = [key for key in _NESTED if isinstance(config.get(key), dict)]
    if parts:
        return parts[0]
    outer = str(config.get("model_type"))
    if outer in model_types():
        return None
    parts = [key for key, part in config.items() if isinstance(part, dict) and _is_language_model(part)]
    if len(parts) > 1:
        raise LessonError(
            f"{name} holds several language models ({', '.join(parts)}). Pass the part that you mean as a config of "
            "its own."
        )
    if not parts and outer in text_types() and "num_hidden_layers" not in config:
        others = [key for key, part in config.items() if isinstance(part, dict) and "num_hidden_layers" in part]
        if others:
            raise LessonError(
                f"{name} is a {outer} config, and sizing recognizes none of its parts as a language model "
                f"({', '.join(others)}). Pass the part that you mean as a config of its own."
            )
    return parts[0] if parts else None


def _is_language_model(part: dict[str, Any]) -> bool:
    model_type = str(part.get("model_type"))
    return text_types().get(model_type, model_type) in model_types()
