"""A real prefill and decode engine, and the tools that the lessons share.

`import llmlesson` is light: torch is imported when a name that needs it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmlesson.errors import LessonError

if TYPE_CHECKING:
    from llmlesson.batching.batch_engine import BatchEngine
    from llmlesson.engine import Engine, Generation, KVCache, Sampling, Step, load

__version__ = "0.1.0"
__all__ = ["BatchEngine", "Engine", "Generation", "KVCache", "LessonError", "Sampling", "Step", "__version__", "load"]

_LAZY = dict.fromkeys(("Engine", "Generation", "KVCache", "Sampling", "Step", "load"), "llmlesson.engine")
_LAZY["BatchEngine"] = "llmlesson.batching.batch_engine"


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in ("batching", "engine", "lessons", "measure", "server", "sizing", "views", "widgets"):
        return import_module(f"llmlesson.{name}")
    raise AttributeError(f"module 'llmlesson' has no attribute {name!r}")
