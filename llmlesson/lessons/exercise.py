"""What an exercise consists of, and finding it by name."""

from __future__ import annotations

import ast
import difflib
import dis
import pkgutil
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

from llmlesson.errors import LessonError

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One call, and its expected result.

    args and expected are plain values: numbers, texts, bytes, tensors, and lists, tuples, sets and dicts of these. A
    list equals a tuple with the same content; a tensor must agree in shape and dtype, and in values within the
    exercise's tolerance. args may hold other objects (an engine, a function): these are handed over as they are.
    """

    args: tuple[Any, ...]
    expected: Any
    means: str = ""  # what failing here usually means, if no mistake is recognised
    origin: str = "fixed"  # "fixed" | "random" | "real model"


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give."""

    source: str
    means: str = ""  # what to tell those whose answers equal this one's
    says: str = ""  # without `means`: a piece of the general message that must appear


class NotDone(BaseException):
    """The answer isn't there yet; the text says what is missing, if only a part is.

    Not an Exception, so that no `except Exception` around an unfinished function swallows it.
    """


class NotAsAsked(Exception):
    """Raised by an exercise's `run`: the function gave `got`, and the text says what is wrong about how it did that."""

    def __init__(self, problem: str, got: Any = None) -> None:
        super().__init__(problem)
        self.got = got


def does_nothing(function: Any) -> bool:
    """Whether a function's body is empty, as in a stub: `pass`, `...` or only a docstring."""

    def empty() -> None: ...

    return not hasattr(function, "__code__") or _code(function) == _code(empty)


def call(function: Function, *args: Any) -> Any:
    return function(*args)


@dataclass(frozen=True)
class Exercise:
    """See `llmlesson.lessons` for what each field should hold."""

    lesson: str
    stub: str
    hints: tuple[str, str]
    solution: str
    cases: Callable[[random.Random], Iterable[Case]]
    mistakes: tuple[Mistake, ...]
    others: tuple[str, ...]
    run: Callable[..., Any] = call
    tolerance: float = 1e-4  # of tensors and floats: |got - expected| <= tolerance · (1 + |expected|)

    @property
    def function_name(self) -> str:
        return _function(self.stub).name

    @property
    def parameters(self) -> list[str]:
        """The names of a case's `args`: as in the stub, or as in `run` if that uses them in its own way."""
        if self.run is call:
            return [argument.arg for argument in _function(self.stub).args.args]
        return list(signature(self.run).parameters)[1:]

    def build(self, source: str) -> Function:
        """The function that a source text (stub, solution, mistake, …) defines."""
        namespace: dict[str, Any] = {"__name__": "answer"}
        exec(compile(source, "<answer>", "exec"), namespace)
        function: Function = namespace[self.function_name]
        return function


def exercise_names() -> list[str]:
    """All exercises, in alphabetical order."""
    from llmlesson.lessons import exercises

    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(exercises.__path__))


def find_exercise(name: str) -> Exercise:
    """Raises LessonError for an unknown exercise."""
    if not isinstance(name, str):
        raise LessonError(
            f'The name of an exercise is a text, as in lessons.check("kv-cache", new_cache), not {name!r}.'
        )
    names = exercise_names()
    if name not in names:
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"They are: {', '.join(names)}."
        raise LessonError(f"There is no exercise {name!r}. {hint}")
    module = import_module(f"llmlesson.lessons.exercises.{name.replace('-', '_')}")
    exercise: Exercise = module.EXERCISE
    return exercise


def _code(function: Function) -> list[tuple[str, Any]]:
    return [(step.opname, step.argval) for step in dis.get_instructions(function) if step.opname != "NOP"]


def _function(source: str) -> ast.FunctionDef:
    return next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
