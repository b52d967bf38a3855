"""`llmlesson.load`: from a name to an engine."""

from __future__ import annotations

import difflib
from pathlib import Path

import torch

from llmlesson.engine.checkpoint import load_model, read_json
from llmlesson.engine.config import parse_config
from llmlesson.engine.engine import Engine
from llmlesson.engine.threads import choose_threads
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError
from llmlesson.files.fetch import ensure_default_model

DEFAULT_MODEL = "smollm2-135m"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.float32}


def load(model: str | Path = DEFAULT_MODEL, device: str = "auto", dtype: str = "auto") -> Engine:
    """An engine for a model.

    model: "smollm2-135m" (fetched once, see `llmlesson fetch`), a local Hugging Face folder, or the id of a model on
    the Hugging Face hub ("org/name"; only this asks the network once it is cached).
    device: "cpu", "cuda", "cuda:1", …; "auto" is CUDA where there is one.
    dtype: "float32", "bfloat16" or "float16"; "auto" is float32 on a CPU, bfloat16 on CUDA. "int8", on a CPU, stores
    matrices as 8-bit integers and computes in float32 otherwise: faster decode, slightly other logits.
    On a CPU this sets torch's thread count: see `threads.choose_threads`.
    Raises LessonError for an unknown name or device, and for a model that can't be run.
    """
    chosen_device = _device(device)
    if dtype == "auto":
        dtype = "float32" if chosen_device.type == "cpu" else "bfloat16"
    if dtype not in DTYPES:
        raise LessonError(f"Unknown dtype {dtype!r}. Choose one of: auto, {', '.join(DTYPES)}.")
    if dtype == "int8" and chosen_device.type != "cpu":
        raise LessonError("dtype='int8' works on a CPU only. Use 'bfloat16' on CUDA.")
    folder = find_folder(model)
    raw = read_json(folder / "config.json")
    if not raw:
        raise LessonError(f"{folder} has no config.json: it is not a Hugging Face model folder.")
    config = parse_config(raw)
    weights = load_model(folder, config, chosen_device, DTYPES[dtype], int8=dtype == "int8")
    tokenizer, missing = None, ""
    try:
        tokenizer = Tokenizer(folder)
    except LessonError as error:
        missing = str(error)
    engine = Engine(str(model), weights, tokenizer, _eos_token_ids(folder, tokenizer), missing)
    if chosen_device.type == "cpu":
        choose_threads(lambda: engine.prefill([0], engine.new_cache(1)))  # as much work as a decode step
    return engine


def find_folder(model: str | Path) -> Path:
    """Where the files of a model are; fetches the default model and hub models that aren't there yet."""
    if isinstance(model, str) and model == DEFAULT_MODEL:
        return ensure_default_model()
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    name = str(model)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return _from_hub(name)
    close = difflib.get_close_matches(name.lower(), [DEFAULT_MODEL], cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise LessonError(
        f"There is no model or folder {name!r}.{hint} Give the preset {DEFAULT_MODEL!r}, a local folder with a "
        "Hugging Face model, or a hub id such as 'Qwen/Qwen2.5-0.5B-Instruct'."
    )


def _from_hub(repo_id: str) -> Path:
    # Imported here: only this one way of loading needs the hub.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja"]
    try:
        return Path(snapshot_download(repo_id, allow_patterns=patterns, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    except ValueError as error:
        raise LessonError(f"{repo_id!r} is no valid model id: {error}") from None
    try:
        # One question with a short limit, since a download without a network would retry for a minute.
        HfApi().model_info(repo_id, timeout=10)
        return Path(snapshot_download(repo_id, allow_patterns=patterns))
    except HfHubHTTPError as error:
        raise LessonError(f"The Hugging Face hub does not give {repo_id!r}: {error}") from error
    except Exception as error:
        raise LessonError(
            f"{repo_id!r} is no local folder, and the Hugging Face hub can't be reached ({type(error).__name__}). "
            f"Connect to the network, or give the path of a folder that holds the model; "
            f"{DEFAULT_MODEL!r} works offline once it is fetched."
        ) from error


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise LessonError(f"Unknown device {name!r}. Choose auto, cpu or cuda.") from None
    if device.type not in ("cpu", "cuda"):
        raise LessonError(f"The device {name!r} is not supported. Choose auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LessonError("This PyTorch sees no CUDA device. Use device='cpu', or install a CUDA build of torch.")
    return device


def _eos_token_ids(folder: Path, tokenizer: Tokenizer | None) -> frozenset[int]:
    """Every id that some file names as the end: they do not always agree, and each of them ends an answer."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids = read_json(folder / name).get("eos_token_id")
        found.update([ids] if isinstance(ids, int) else ids or [])
    eos = tokenizer.eos_token if tokenizer else None
    if tokenizer and eos in tokenizer.special_tokens:
        found.add(tokenizer.special_tokens[eos])
    return frozenset(found)
