"""Finds out why a machine does not run the course: `llmlesson doctor`, and its short form in lesson 00.

Nothing here imports torch, or any other package that may be broken, before a check needs it.
"""

from llmlesson.doctor.checks import check_setup, examine
from llmlesson.doctor.finding import Finding

__all__ = ["Finding", "check_setup", "examine"]
