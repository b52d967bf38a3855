"""The default model for cases on real tensors, without a second copy of it in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from llmlesson.engine.checkpoint import read_json
from llmlesson.engine.engine import Engine
from llmlesson.engine.load import DEFAULT_MODEL, find_folder, load
from llmlesson.engine.tokenizer import Tokenizer


def real_engine() -> Engine:
    """The default model on the CPU in float32: one that is already loaded, as by the lesson, else loaded now, once."""
    return next((engine for engine in _live_engines() if _is_plain(engine)), None) or _loaded()


def real_tokenizer() -> Tokenizer:
    """The default model's tokenizer, which is there sooner than the model where none is loaded."""
    return next((engine.tokenizer for engine in _live_engines()), None) or _tokenizer()


@cache
def real_merges() -> dict[tuple[str, str], int]:
    """The default model's merge table: a pair of tokens, as the vocabulary spells them, to its rank, the first 0."""
    content = read_json(find_folder(DEFAULT_MODEL) / "tokenizer.json")
    return {(left, right): rank for rank, (left, right) in enumerate(content["model"]["merges"])}


def _live_engines() -> Iterator[Engine]:
    # Looked up among the live objects, so that `check` needs no further argument and `load` no list of its results.
    return (thing for thing in gc.get_objects() if type(thing) is Engine and thing.name == DEFAULT_MODEL)


def _is_plain(engine: Engine) -> bool:
    return engine.device.type == "cpu" and engine.dtype == torch.float32 and isinstance(engine.model.head, Tensor)


@cache
def _loaded() -> Engine:
    return load(DEFAULT_MODEL, device="cpu", dtype="float32")


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer(find_folder(DEFAULT_MODEL))
