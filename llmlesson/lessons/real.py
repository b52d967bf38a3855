"""The default model for cases on real tensors, without a second copy of it in memory."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from llmlesson.engine.engine import Engine
from llmlesson.engine.load import DEFAULT_MODEL, find_folder, load
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError
from llmlesson.files.model_files import MAX_TOKENIZER, read_json

_in_use: Engine | None = None  # what the lesson named with `use`


def use(engine: Engine) -> None:
    """Say once which engine a lesson works with, so that its checks need no second one in memory.

    Checks on real tensors compare with the default model on a CPU in float32. If the engine is of another kind,
    `my_engine` uses it, and the checks load their own when they need it. Raises LessonError for anything else.
    """
    global _in_use
    if not isinstance(engine, Engine):
        raise LessonError(
            f"lessons.use() takes an engine, not {type(engine).__name__}. llmlesson.load() makes one: "
            "engine = llmlesson.load(), then lessons.use(engine)."
        )
    _in_use = engine


def engine_in_use() -> Engine:
    """The lesson's engine; if it named none, the default model, loaded once."""
    return _in_use or _loaded()


def real_engine() -> Engine:
    """The default model on the CPU in float32: the lesson's if it is one, else loaded now, once."""
    return _in_use if _in_use is not None and _is_plain(_in_use) else _loaded()


def real_tokenizer() -> Tokenizer:
    """The default model's tokenizer, which loads faster than the model."""
    return _in_use.tokenizer if _in_use is not None and _in_use.name == DEFAULT_MODEL else _tokenizer()


@cache
def real_merges() -> dict[tuple[str, str], int]:
    """The default model's merge table: a pair of tokens, as the vocabulary spells them, to its rank, the first 0."""
    content = read_json(find_folder(DEFAULT_MODEL) / "tokenizer.json", MAX_TOKENIZER)
    return {(left, right): rank for rank, (left, right) in enumerate(content["model"]["merges"])}


def _is_plain(engine: Engine) -> bool:
    return (
        engine.name == DEFAULT_MODEL
        and engine.device.type == "cpu"
        and engine.dtype == torch.float32
        and isinstance(engine.model.head, Tensor)
    )


@cache
def _loaded() -> Engine:
    return load(DEFAULT_MODEL, device="cpu", dtype="float32")


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer(find_folder(DEFAULT_MODEL))
