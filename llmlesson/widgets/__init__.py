"""Widgets for the lessons: thin ipywidgets over a session object and the views.

Each is a class with `.ui` (made when first shown), `.to_html()` (the same picture without a kernel) and `.close()`.
Those over sizes need no torch; it is imported when one that needs an engine is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmlesson.widgets.cache_calculator import CacheCalculator
from llmlesson.widgets.gqa_explorer import GQAExplorer
from llmlesson.widgets.prediction import Prediction

if TYPE_CHECKING:
    from llmlesson.widgets.attention_explorer import AttentionExplorer
    from llmlesson.widgets.cache_inspector import CacheInspector
    from llmlesson.widgets.decode_stepper import DecodeStepper
    from llmlesson.widgets.machine_explorer import MachineExplorer
    from llmlesson.widgets.prefill_explorer import PrefillExplorer
    from llmlesson.widgets.request_explorer import RequestExplorer
    from llmlesson.widgets.request_map import RequestMap
    from llmlesson.widgets.tokenizer_explorer import TokenizerExplorer

__all__ = [
    "AttentionExplorer",
    "CacheCalculator",
    "CacheInspector",
    "DecodeStepper",
    "GQAExplorer",
    "MachineExplorer",
    "Prediction",
    "PrefillExplorer",
    "RequestExplorer",
    "RequestMap",
    "TokenizerExplorer",
]

_LAZY = {
    "AttentionExplorer": "attention_explorer",
    "CacheInspector": "cache_inspector",
    "DecodeStepper": "decode_stepper",
    "MachineExplorer": "machine_explorer",
    "PrefillExplorer": "prefill_explorer",
    "RequestExplorer": "request_explorer",
    "RequestMap": "request_map",
    "TokenizerExplorer": "tokenizer_explorer",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"llmlesson.widgets.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'llmlesson.widgets' has no attribute {name!r}")
