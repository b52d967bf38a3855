"""Widgets for the lessons: thin ipywidgets over a session object and the views.

Each is a class with `.ui` (made when first shown), `.to_html()` (the same picture without a kernel) and `.close()`.
"""

from llmlesson.widgets.cache_calculator import CacheCalculator
from llmlesson.widgets.cache_inspector import CacheInspector
from llmlesson.widgets.decode_stepper import DecodeStepper
from llmlesson.widgets.gqa_explorer import GQAExplorer
from llmlesson.widgets.prediction import Prediction
from llmlesson.widgets.prefill_explorer import PrefillExplorer
from llmlesson.widgets.tokenizer_explorer import TokenizerExplorer

__all__ = [
    "CacheCalculator",
    "CacheInspector",
    "DecodeStepper",
    "GQAExplorer",
    "Prediction",
    "PrefillExplorer",
    "TokenizerExplorer",
]
