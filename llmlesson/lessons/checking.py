"""Running a learner's function on the cases of an exercise."""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass
from functools import wraps
from types import CodeType
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.lessons.borrowed import calls_noticed, is_the_courses
from llmlesson.lessons.compare import copied, difference, type_in_words, unchanged
from llmlesson.lessons.exercise import Case, Exercise, Function, NotAsAsked, NotDone, does_nothing, find_exercise
from llmlesson.lessons.my_file import keep
from llmlesson.lessons.report import Failure, Report

# What a learner's function may raise without ending the notebook. An interrupt counts too: it is how you leave an
# endless loop, and then you want to see the input that led there.
LEARNERS_ERRORS = (Exception, KeyboardInterrupt, SystemExit)


def check(exercise: str, function: Function, seed: int | None = None) -> Report:
    """Run `function` on the cases of an exercise, up to the first that fails.

    As the last line of a cell, the report is shown; programs can read `.passed` and `.status` ("passed", "failed", "not
    done"). Some cases are random and differ in each run; the `seed` in a report brings them back. Exceptions of the
    function are shown and not passed on. A function that passes and is a part of an engine goes into
    `my_engine.py` (see `my_file`). Raises LessonError for an unknown exercise, and for a
    seed that is not a whole number.
    """
    wanted = find_exercise(exercise)
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise LessonError(f"A seed is a whole number, such as seed=7, not {seed!r}.")
    if not callable(function):
        return Report(exercise, wanted.function_name, "failed", failure=_not_a_function(wanted, function))
    if is_the_courses(function):
        return Report(exercise, wanted.function_name, "failed", failure=Failure(problem=_borrowed(function.__name__)))
    if seed is None:
        seed = random.SystemRandom().randrange(10_000)
    seen: list[Case] = []
    for case in wanted.cases(random.Random(seed)):
        seen.append(case)
        outcome = _outcome(wanted, function, case)
        if outcome.kind == "not done":
            return Report(exercise, wanted.function_name, "not done", missing=outcome.problem)
        if outcome.problem:
            failure = _failure(wanted, outcome, seen, seed)
            return Report(exercise, wanted.function_name, "failed", len(seen), failure)
    kept = keep(exercise, function, lambda written: _passes(wanted, written, seen))
    return Report(exercise, wanted.function_name, "passed", len(seen), kept=kept)


def _passes(exercise: Exercise, function: Function, cases: list[Case]) -> bool:
    """Whether a function is right in the quick ones of these cases."""
    return all(_outcome(exercise, function, case).kind == "right" for case in cases if case.origin != "real model")


@dataclass(frozen=True)
class _Outcome:
    """The outcome of one case.

    kind: "right", "value" (not the expected one), "type" (of another type than expected), "error" (it raised), "way"
    (it may be right, but how it was done is not what was asked) or "not done".
    """

    kind: str
    got: Any = None
    error: BaseException | None = None
    problem: str = ""  # one line on what is wrong or missing
    why: str = ""  # what is known about it for certain


def _outcome(exercise: Exercise, function: Function, case: Case) -> _Outcome:
    args = copied(case.args)
    borrowed: list[str] = []
    if case.origin == "real model":  # then an exercise hands out the engine's own objects, to be called
        outcome = _called(exercise, function, args)
    else:
        with calls_noticed() as borrowed:
            outcome = _called(exercise, function, args)
    if borrowed:
        return _Outcome("way", outcome.got, problem=_borrowed(borrowed[0]))
    if outcome.kind != "right":
        return outcome
    wrong = difference(case.expected, outcome.got, exercise.tolerance)
    if wrong:
        kind = "type" if wrong.wrong_kind else "value"
        return _Outcome(kind, outcome.got, problem=wrong.text, why=_none_means(outcome.got))
    if not unchanged(case.args, args):
        pairs = zip(exercise.parameters, case.args, args, strict=True)
        changed = [name for name, before, after in pairs if not unchanged(before, after)]
        problem = f"The result is right, but the function changed its input: {', '.join(changed)}."
        why = "Whoever called the function still needs what they passed in. Build a new list or tensor instead."
        return _Outcome("way", outcome.got, problem=problem, why=why)
    return outcome


def _called(exercise: Exercise, function: Function, args: Any) -> _Outcome:
    try:
        return _Outcome("right", copied(exercise.run(_watched(function), *args)))
    except NotDone as unfinished:
        return _Outcome("not done", problem=str(unfinished))
    except NotAsAsked as complaint:
        return _Outcome("way", copied(complaint.got), problem=str(complaint))
    except LEARNERS_ERRORS as error:
        return _Outcome("error", error=error, problem=_where(error, function), why=_error_means(error))


def _watched(function: Function) -> Function:
    """The function, wrapped so that everything ends as soon as it turns out to be a stub."""

    @wraps(function, updated=())
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except NotImplementedError:
            raise NotDone from None
        if result is Ellipsis or (result is None and does_nothing(function)):
            raise NotDone
        return result

    return watched


def _failure(exercise: Exercise, outcome: _Outcome, cases: list[Case], seed: int) -> Failure:
    case = cases[-1]
    recognised = _recognised(exercise, outcome, cases)
    # What a wrong value usually means doesn't help someone whose values have the wrong type, or never came.
    usual = (recognised or case.means) if outcome.kind == "value" else ""
    return Failure(
        number=len(cases),
        origin=case.origin,
        inputs=dict(zip(exercise.parameters, case.args, strict=True)),
        expected=case.expected,
        got=outcome.got,
        raised=outcome.error is not None,
        problem=outcome.problem,
        means=usual,
        why="" if usual else recognised or outcome.why,
        seed=seed if case.origin == "random" else None,
    )


def _recognised(exercise: Exercise, outcome: _Outcome, cases: list[Case]) -> str:
    """The meaning of the first mistake that goes wrong at the last of these cases, in the same way."""
    for mistake in exercise.mistakes:
        if mistake.means and _same(_replay(exercise, mistake.source, cases), outcome):
            return mistake.means
    return ""


def _replay(exercise: Exercise, source: str, cases: list[Case]) -> _Outcome | None:
    """The outcome of the last case; None if an earlier one goes wrong already."""
    function = exercise.build(source)
    if any(_outcome(exercise, function, case).problem for case in cases[:-1]):
        return None
    return _outcome(exercise, function, cases[-1])


def _same(one: _Outcome | None, other: _Outcome) -> bool:
    if one is None or one.kind != other.kind:
        return False
    if one.error is not None or other.error is not None:
        return type(one.error) is type(other.error) and str(one.error) == str(other.error)
    try:
        return difference(one.got, other.got, 1e-6) is None
    except TypeError:  # the learner's result, or the mistake's, is nothing that can be compared
        return False


def _borrowed(name: str) -> str:
    return f"You called {name}, which is the course's own way to do it. Here you write it yourself: do it without."


def _not_a_function(exercise: Exercise, given: Any) -> Failure:
    name = exercise.function_name
    return Failure(
        problem=f"It is no function but {type_in_words(given)}.",
        why=f"Pass the function itself, without calling it: {name}, not {name}(…).",
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
