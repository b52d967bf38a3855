"""Finds the layers of a model that a user names by a table entry, a folder, a file, a hub id or a config."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.files.hub import config_file, is_id
from llmlesson.files.model_files import read_json
from llmlesson.files.model_folder import existing, what_file
from llmlesson.files.model_folder import read_config as read_folder
from llmlesson.sizing.from_config import model_spec
from llmlesson.sizing.specs import Layer, ModelSpec


@cache
def model_table() -> dict[str, dict[str, Any]]:
    """The configs that come with the package: name -> config, family, source and expected sizes."""
    text = files("llmlesson.sizing").joinpath("data/model_configs.json").read_text("utf-8")
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table


def table_name(name: str) -> str | None:
    """The table's spelling of `name`, which may lack the organisation, in any case. None if it isn't there."""
    wanted = name.lower()
    by_name = {entry.lower(): entry for entry in model_table()}
    by_tail = {entry.lower().rpartition("/")[2]: entry for entry in model_table()}
    return by_name.get(wanted) or by_tail.get(wanted)


def resolve(config_or_name: Any) -> ModelSpec:
    """The layers of the model that `config_or_name` names (see `kv_cache`). LessonError if it names none."""
    if isinstance(config_or_name, ModelSpec):
        return config_or_name
    if isinstance(config_or_name, list | tuple):
        if not config_or_name or not all(isinstance(layer, Layer) for layer in config_or_name):
            raise LessonError("A list that describes a model must hold llmlesson.sizing.Layer, one for each layer.")
        return ModelSpec("these layers", "given layers", tuple(config_or_name))
    config, name = load_config(config_or_name)
    return model_spec(config, name)


def load_config(config_or_name: Any) -> tuple[dict[str, Any], str]:
    """The parsed config that `config_or_name` names, and a name for it."""
    if isinstance(config_or_name, Mapping):
        return dict(config_or_name), str(config_or_name.get("_name_or_path") or "the config")
    if hasattr(config_or_name, "to_dict") and hasattr(config_or_name, "model_type"):  # a transformers config
        return config_or_name.to_dict(), str(getattr(config_or_name, "name_or_path", "") or "the config")
    if not isinstance(config_or_name, str | Path) or not str(config_or_name).strip():
        raise LessonError(
            f"Name a model by a table entry, a folder, a config.json, a hub id or a config, not by {config_or_name!r}."
        )
    text = str(config_or_name).strip()
    if path := existing(text):
        return read_folder(path) if path.is_dir() else read_config(path), text
    if text.endswith(".json"):
        return read_config(Path(text).expanduser()), text
    entry = table_name(text)
    if entry is not None:
        return model_table()[entry]["config"], entry
    if is_id(text):
        return read_config(config_file(text)), text
    close = difflib.get_close_matches(text.lower(), [n.lower().rpartition("/")[2] for n in model_table()], 3, 0.5)
    hint = f" Did you mean {', '.join(close)}?" if close else ""
    raise LessonError(f"No model is called {text!r}: give a table entry, a folder, a config.json or a hub id.{hint}")


def read_config(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`. LessonError if it isn't there or isn't one."""
    try:
        config = read_json(path)
    except LessonError:
        if path.suffix == ".json":
            raise
        raise LessonError(what_file(path)) from None
    if not config:
        raise LessonError(f"Can't read {path}: there is no such file, or nothing in it. Give a model's config.json.")
    return config
