"""Finds out why the course doesn't run on a machine: `llmlesson doctor`, and its short version in lesson 00.

Nothing here imports torch, or any other package that may be broken, until a check needs it.
"""

from llmlesson.doctor.checks import check_setup, examine
from llmlesson.doctor.finding import Finding

__all__ = ["Finding", "check_setup", "examine"]
