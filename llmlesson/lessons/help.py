"""Hints and solutions, folded so that they spoil nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmlesson.lessons.exercise import find_exercise
from llmlesson.views import exercise as view


@dataclass(frozen=True, repr=False)
class Help:
    """Texts that unfold at a click in a notebook, and are simply printed in a terminal."""

    parts: dict[str, str]  # what is shown before it is unfolded: the text
    code: bool = False

    def __repr__(self) -> str:
        return "\n".join(f"{title}:\n{text}" if self.code else f"{title}: {text}" for title, text in self.parts.items())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": view.folded(self.parts, self.code), "text/plain": repr(self)}


def hint(exercise: str) -> Help:
    """Two hints, the second more of a push than the first. Raises LessonError for an unknown exercise."""
    first, second = find_exercise(exercise).hints
    return Help({"Hint 1": first, "Hint 2": second})


def solution(exercise: str) -> Help:
    """One way to do it. Raises LessonError for an unknown exercise."""
    return Help({"Solution": find_exercise(exercise).solution.strip()}, code=True)
