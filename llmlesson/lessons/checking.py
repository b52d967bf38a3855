"""Running a learner's function on the cases of an exercise."""

from __future__ import annotations

import dis
import random
import traceback
from dataclasses import dataclass
from functools import wraps
from types import CodeType
from typing import Any

from llmlesson.lessons.compare import copied, difference, type_in_words, unchanged
from llmlesson.lessons.exercise import Case, Exercise, Function, find_exercise
from llmlesson.lessons.report import Failure, Report

# What a learner's function may do without ending the notebook. An interrupt counts: it is how one leaves an endless
# loop, and then the input that led there is worth seeing.
LEARNERS_ERRORS = (Exception, KeyboardInterrupt, SystemExit)


def check(exercise: str, function: Function, seed: int | None = None) -> Report:
    """Run `function` on the cases of an exercise, up to the first that fails.

    The report is shown by being the last line of a cell; `.passed` and `.status` ("passed", "failed", "not done") tell
    a program. Some cases are random, and differ in each run; with the `seed` that a report names they come again.
    What the function raises is shown and not passed on. Raises LessonError for a name that is no exercise.
    """
    wanted = find_exercise(exercise)
    if not callable(function):
        return Report(exercise, wanted.function_name, "failed", failure=_not_a_function(wanted, function))
    if seed is None:
        seed = random.SystemRandom().randrange(10_000)
    seen: list[Case] = []
    for case in wanted.cases(random.Random(seed)):
        seen.append(case)
        outcome = _outcome(wanted, function, case)
        if outcome.not_done:
            return Report(exercise, wanted.function_name, "not done")
        if outcome.problem:
            means = _recognised(wanted, outcome, seen) or outcome.means or case.means
            failure = _failure(wanted, case, len(seen), outcome, means, seed)
            return Report(exercise, wanted.function_name, "failed", len(seen), failure)
    return Report(exercise, wanted.function_name, "passed", len(seen))


class _NotDone(BaseException):
    """The function is still the stub. Not an Exception, so that no `except Exception` of a case's `run` keeps it."""


@dataclass(frozen=True)
class _Outcome:
    """What came of one case."""

    got: Any = None
    error: BaseException | None = None
    problem: str = ""  # one line on what is wrong; empty where all is right
    means: str = ""
    not_done: bool = False


def _outcome(exercise: Exercise, function: Function, case: Case) -> _Outcome:
    args = copied(case.args)
    try:
        got = copied(exercise.run(_watched(function), *args))
    except _NotDone:
        return _Outcome(not_done=True)
    except LEARNERS_ERRORS as error:
        return _Outcome(error=error, problem=_where(error, function), means=_error_means(error))
    problem = difference(case.expected, got, exercise.tolerance)
    if problem:
        return _Outcome(got, problem=problem, means=_none_means(got))
    if not unchanged(case.args, args):
        pairs = zip(exercise.parameters, case.args, args, strict=True)
        changed = [name for name, before, after in pairs if not unchanged(before, after)]
        return _Outcome(
            got,
            problem=f"The result is right, but the function changed its input: {', '.join(changed)}.",
            means="Whoever called the function still needs what they passed in. Build a new list or tensor instead.",
        )
    return _Outcome(got)


def _watched(function: Function) -> Function:
    """The function, with an end to everything as soon as it turns out to be a stub."""

    @wraps(function, updated=())
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except NotImplementedError:
            raise _NotDone from None
        if result is Ellipsis or (result is None and _does_nothing(function)):
            raise _NotDone
        return result

    return watched


def _does_nothing(function: Function) -> bool:
    """Whether its body is empty: a function that works and forgets to return is not "not done"."""

    def empty() -> None: ...

    return not hasattr(function, "__code__") or _code(function) == _code(empty)


def _code(function: Function) -> list[tuple[str, Any]]:
    return [(step.opname, step.argval) for step in dis.get_instructions(function) if step.opname != "NOP"]


def _recognised(exercise: Exercise, outcome: _Outcome, cases: list[Case]) -> str:
    """What the first mistake means that goes wrong at the last of these cases, and in the same way."""
    for mistake in exercise.mistakes:
        if mistake.means and _same(_replay(exercise, mistake.source, cases), outcome):
            return mistake.means
    return ""


def _replay(exercise: Exercise, source: str, cases: list[Case]) -> _Outcome | None:
    """What comes of the last case; None if an earlier one goes wrong already."""
    function = exercise.build(source)
    if any(_outcome(exercise, function, case).problem for case in cases[:-1]):
        return None
    return _outcome(exercise, function, cases[-1])


def _same(one: _Outcome | None, other: _Outcome) -> bool:
    if one is None or not one.problem:
        return False
    if one.error is not None or other.error is not None:
        return type(one.error) is type(other.error)
    try:
        return difference(one.got, other.got, 1e-6) is None
    except TypeError:  # the learner's result, or the mistake's, is nothing that can be compared
        return False


def _failure(exercise: Exercise, case: Case, number: int, outcome: _Outcome, means: str, seed: int) -> Failure:
    return Failure(
        number=number,
        origin=case.origin,
        inputs=dict(zip(exercise.parameters, case.args, strict=True)),
        expected=case.expected,
        got=outcome.got,
        raised=outcome.error is not None,
        problem=outcome.problem,
        means=means,
        seed=seed if case.origin == "random" else None,
    )


def _not_a_function(exercise: Exercise, given: Any) -> Failure:
    name = exercise.function_name
    return Failure(
        problem=f"It is no function but {type_in_words(given)}.",
        means=f"Pass the function itself, without calling it: {name}, not {name}(…).",
    )


def _where(error: BaseException, function: Function) -> str:
    """The error and the last line of the learner's own code that it came through."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        text = "You stopped it."
    code: CodeType | None = getattr(function, "__code__", None)
    own = [f for f in traceback.extract_tb(error.__traceback__) if code is not None and f.filename == code.co_filename]
    if own and own[-1].line:
        return f"{text}\nin line {own[-1].lineno}: {own[-1].line}"
    return text


def _error_means(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "If it ran on and on: what should end the loop never happens with this input."
    if isinstance(error, RecursionError):
        return "The function calls itself without end: what should stop it never happens with this input."
    return ""


def _none_means(got: Any) -> str:
    return "A function that comes to its end without `return` gives None." if got is None else ""
