"""The JSON files of a model folder, which anybody may have made: read within bounds, checked before use.

`size` and `load` both read through here, so that both say the same about the same file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmlesson.errors import LessonError

MB = 1_000_000
MAX_JSON = 64 * MB  # the index of a model with 100,000 tensors has about 10 MB
MAX_TOKENIZER = 256 * MB  # the largest tokenizer.json in use have about 35 MB
MAX_DEPTH = 64

# Far above every model that exists (126 layers, hidden sizes of 20,000), far below what takes a machine down.
COUNTS = {
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 10_000
    ),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 100_000),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"), 100_000),
    **dict.fromkeys(("head_dim", "global_head_dim", "v_head_dim", "qk_rope_head_dim", "kv_lora_rank"), 100_000),
    **dict.fromkeys(("hidden_size", "n_embd", "n_embed", "d_model"), 1_000_000),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"), 100_000),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "ffn_dim", "d_ff"), 10_000_000),
    "vocab_size": 100_000_000,
}
TABLES = ("rope_scaling", "rope_parameters", "quantization_config", "text_config", "per_layer_config")


def read_json(path: Path, limit: int = MAX_JSON) -> dict[str, Any]:
    """The object in a JSON file of at most `limit` bytes; {} where there is no such file.

    Raises LessonError that says what the file is instead: a Git LFS pointer, a web page, cut short, nested too deep, …
    """
    try:
        content = json.loads(read_text(path, limit))
    except FileNotFoundError:
        return {}
    except RecursionError:
        raise LessonError(_nested(path)) from None
    except ValueError as error:
        if isinstance(error, LessonError):
            raise
        raise LessonError(f"{path} is not valid JSON: {_json_fault(path, error)}") from None
    if not isinstance(content, dict):
        raise LessonError(f"{path} must hold a JSON object, not a {type(content).__name__}. Get it again.")
    if _deeper_than(content, MAX_DEPTH):
        raise LessonError(_nested(path))
    return content


def read_text(path: Path, limit: int = MAX_JSON) -> str:
    """The UTF-8 text of a regular file of at most `limit` bytes. LessonError if it is none, FileNotFoundError."""
    try:
        if path.exists() and not path.is_file():
            raise LessonError(f"{path} should be a file, but it is {_special(path)}. Get the file again.")
        size = path.stat().st_size
        if size > limit:
            raise LessonError(
                f"{path} has {size / MB:,.0f} MB; such files have at most {limit / MB:,.0f} MB. Get it again."
            )
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise LessonError(f"{path} is not text in UTF-8: {what_is(path) or 'get the file again.'}") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LessonError(f"{path} can't be read ({error.strerror or error}).") from None


def what_is(path: Path) -> str:
    """What a file is that isn't what its name says, and what to do; empty where nothing is known of it."""
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError:
        return ""
    if not start:
        return "it is empty. Get the file again."
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself. Run `git lfs pull` in its folder, or download the file."
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page, such as an error message or a login. Download the file itself."
    if start.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark (BOM). Save it as UTF-8 without one."
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16. Save it as UTF-8."
    if start.startswith(b"GGUF"):
        return "it is a GGUF file."
    if start.startswith(b"PK\x03\x04"):
        return "it is a zip archive, as PyTorch's .bin and .pt files are."
    if start.startswith(b"\x80"):
        return "it is a Python pickle, as PyTorch's old .bin and .pt files are."
    if start.startswith(b"\x1f\x8b"):
        return "it is compressed with gzip. Unpack it."
    return ""


def check_config(config: Mapping[str, Any], where: str) -> None:
    """Raise LessonError, naming the key, where a model's config holds a count that no model has, or a wrong type.

    Counts may be null, and lists of counts, one for each layer. Looks at the keys of `config`, not at nested configs.
    """
    model_type = config.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise LessonError(f"{where}: 'model_type' must be a name, not {_short(model_type)}.")
    for key in TABLES:
        if config.get(key) is not None and not isinstance(config[key], Mapping):
            raise LessonError(f"{where}: {key!r} must be an object or null, not {_short(config[key])}.")
    for key, limit in COUNTS.items():
        value = config.get(key)
        for count in value if isinstance(value, list) else [value]:
            if count is not None:
                _check_count(count, key, limit, where)


def _check_count(value: object, key: str, limit: int, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value in _INFINITE:
        raise LessonError(f"{where}: {key!r} must be a whole number, not {_short(value)}.")
    if not 0 <= value <= limit or value != int(value):
        raise LessonError(f"{where}: {key!r} must be a whole number from 0 to {limit:,}, not {_short(value)}.")


_INFINITE = (float("inf"), float("-inf"))


def _short(value: object) -> str:
    """A value as a message shows it: a stranger's value may be long."""
    if isinstance(value, int) and not -(10**30) < value < 10**30:
        return "a number of more than 30 digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _json_fault(path: Path, error: ValueError) -> str:
    known = what_is(path)
    if known:
        return known
    if isinstance(error, json.JSONDecodeError) and not error.doc[error.pos + 1 :].strip():
        return f"it is cut off after {len(error.doc):,} characters. Get the file again."
    if isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string"):
        return f"it is cut off inside a string, after {len(error.doc):,} characters. Get the file again."
    return f"{error}. Get the file again."


def _nested(path: Path) -> str:
    return (
        f"{path} is nested more than {MAX_DEPTH} levels deep, far more than such a file should be. Get the file again."
    )


def _deeper_than(content: object, levels: int) -> bool:
    level = [content]
    for _ in range(levels):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)  # type: ignore[attr-defined]
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _special(path: Path) -> str:
    return "a folder" if path.is_dir() else "a pipe or a device"
