"""Widgets for the lessons: thin ipywidgets over a session object and the views.

Each is a class with `.ui` (made when first shown), `.to_html()` (the same picture without a kernel) and `.close()`.
"""

from llmlesson.widgets.prediction import Prediction

__all__ = ["Prediction"]
