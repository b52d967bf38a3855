"""The one exception that the package raises for people to read, and a check for numbers that most settings need."""

from __future__ import annotations

import operator


class LessonError(ValueError):
    """Something that the user can fix. The message says what happened and what to do about it.

    Raised before any state changes: caches, files and downloads stay as they were.
    """


def whole_number(value: object, name: str, least: int = 1, most: int | None = None) -> int:
    """The value as an int, if it is a whole number (numpy's and torch's count, True does not).

    Raises LessonError, with `name`, for a value that is not whole, less than `least` or more than `most`.
    """
    try:
        if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LessonError(f"{name} must be a whole number, not {value!r}.") from None
    if number < least:
        raise LessonError(f"{name} must be at least {least:,}, but it is {number:,}.")
    if most is not None and number > most:
        raise LessonError(f"{name} must be at most {most:,}, but it is {number:,}.")
    return number
