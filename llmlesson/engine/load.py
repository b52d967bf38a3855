"""`llmlesson.load`: from a name to an engine."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from llmlesson.engine.checkpoint import load_model
from llmlesson.engine.config import parse_config
from llmlesson.engine.engine import Engine
from llmlesson.engine.int4 import kernel_is_fast
from llmlesson.engine.quantized import QUANTIZED
from llmlesson.engine.threads import choose_threads
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError
from llmlesson.files.fetch import ensure_default_model
from llmlesson.files.hub import is_id, snapshot
from llmlesson.files.model_files import read_json
from llmlesson.files.model_folder import INDEX, WHOLE, existing, read_config, shard_names, weight_files, what_file

DEFAULT_MODEL = "smollm2-135m"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(model: str | Path = DEFAULT_MODEL, device: str = "auto", dtype: str = "auto") -> Engine:
    """Load a model and return an engine for it.

    model: "smollm2-135m" (fetched once, see `llmlesson fetch`), a local Hugging Face folder, or the id of a model on
    the Hugging Face hub ("org/name"; only this asks the network once it is cached).
    device: "cpu", "cuda", "cuda:1", …; "auto" is CUDA where there is one.
    dtype: "float32", "bfloat16" or "float16"; "auto" is float32 on a CPU, bfloat16 on CUDA. On a CPU also "int8" and
    "int4": matrices are stored as integers of so many bits, and the rest is float32. Decode is faster, and the logits
    differ slightly (see `engine/int8.py` and `engine/int4.py`).
    On a CPU this sets torch's thread count: see `threads.choose_threads`.
    Raises LessonError for an unknown name or device, and for a model that can't be run.
    """
    chosen_device = _device(device)
    if dtype == "auto":
        dtype = "float32" if chosen_device.type == "cpu" else "bfloat16"
    if not isinstance(dtype, str) or dtype not in (*DTYPES, *QUANTIZED):
        raise LessonError(f"Unknown dtype {dtype!r}. Choose one of: {', '.join(('auto', *DTYPES, *QUANTIZED))}.")
    quantized = dtype if dtype in QUANTIZED else None
    if quantized and chosen_device.type != "cpu":
        raise LessonError(f"dtype={dtype!r} works on a CPU only. Use 'bfloat16' on CUDA.")
    folder, part = _find(model)
    # Everything is checked before anything is built: the weights come last.
    raw = read_config(folder)
    config = parse_config(raw)
    eos_token_ids = _named_ends(folder, raw)
    files, chosen = weight_files(folder)
    tokenizer = Tokenizer(folder) if (folder / "tokenizer.json").exists() else None
    if tokenizer and tokenizer.eos_token in tokenizer.special_tokens:
        eos_token_ids |= {tokenizer.special_tokens[tokenizer.eos_token]}
    weights, notes = load_model(files, config, chosen_device, DTYPES.get(dtype, torch.float32), quantized)
    if quantized == "int4" and not kernel_is_fast():
        notes.append(
            "PyTorch's 4-bit kernel has no code for this processor, so the 4-bit values are kept as float32: answers "
            "are the same, but this saves neither time nor memory."
        )
    for note in (part, chosen, *notes):
        if note:
            print(f"note: {note}", file=sys.stderr)
    missing = "" if tokenizer else part or f"{folder} has no tokenizer.json: the model takes lists of ids, but no text."
    engine = Engine(str(model), weights, tokenizer, eos_token_ids, missing)
    if chosen_device.type == "cpu":
        choose_threads(lambda: engine.prefill([0], engine.new_cache(1)))  # as much work as a decode step
    return engine


def find_folder(model: str | Path) -> Path:
    """The folder with a model's files. Fetches the default model and hub models if they aren't there yet."""
    return _find(model)[0]


def _find(model: str | Path) -> tuple[Path, str]:
    """(A model's folder; a note on missing tokenizer files, if the hub couldn't be reached to get them)."""
    if not isinstance(model, str | Path) or not str(model).strip():
        raise LessonError(f"Name a model by {DEFAULT_MODEL!r}, a folder or a hub id, not by {model!r}.")
    if isinstance(model, str) and model == DEFAULT_MODEL:
        return ensure_default_model(), ""
    if folder := existing(model):
        if not folder.is_dir():
            raise LessonError(what_file(folder))
        return folder, ""
    name = str(model)
    if is_id(name):
        return snapshot(name, _lacks)
    close = difflib.get_close_matches(name.lower(), [DEFAULT_MODEL], cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise LessonError(
        f"There is no model or folder {name!r}.{hint} Give the preset {DEFAULT_MODEL!r}, a local folder with a "
        "Hugging Face model, or a hub id such as 'Qwen/Qwen2.5-0.5B-Instruct'."
    )


def _lacks(folder: Path) -> list[str]:
    """The files that a model needs to run and that the folder doesn't have."""
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if (folder / WHOLE).is_file():
        return missing
    if not (folder / INDEX).is_file():
        return [*missing, INDEX if any(folder.glob("model-*-of-*.safetensors")) else WHOLE]
    return [*missing, *(name for name in shard_names(folder / INDEX) if not (folder / name).is_file())]


def _named_ends(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """Every end-of-sequence id in the config files. They don't always agree, and any of them ends an answer."""
    found: set[int] = set()
    generation = read_json(folder / "generation_config.json")
    for name, content in (("generation_config.json", generation), ("config.json", config)):
        ids = content.get("eos_token_id")
        for one in ids if isinstance(ids, list) else [ids]:
            if one is None:
                continue
            if isinstance(one, bool) or not isinstance(one, int):
                raise LessonError(f"{folder / name}: 'eos_token_id' must be an id or a list of ids, but it is {ids!r}.")
            found.add(one)
    return frozenset(found)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        if not isinstance(name, (str, torch.device)):
            raise TypeError
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise LessonError(f"Unknown device {name!r}. Choose auto, cpu or cuda.") from None
    if device.type not in ("cpu", "cuda"):
        raise LessonError(f"The device {name!r} is not supported. Choose auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LessonError("This PyTorch sees no CUDA device. Use device='cpu', or install a CUDA build of torch.")
    return device
