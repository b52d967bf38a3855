"""Whether a learner's result is the expected one, and how it differs.

Equality is never left to the result's own `__eq__`: an object that equals everything passes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

SEQUENCES = (list, tuple)
SCALARS = (str, bytes, bool, int, float, type(None))


@dataclass(frozen=True)
class Difference:
    """One line on how a result differs from what was expected."""

    text: str
    wrong_kind: bool = False  # another type or dtype, whatever the values are


def copied(value: Any) -> Any:
    """A copy that shares no list, dict, set, namespace or tensor with `value`.

    A cache is cloned; other objects stay the same.
    """
    if isinstance(value, SEQUENCES) and type(value) in SEQUENCES:
        return type(value)(copied(item) for item in value)
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (set, bytearray):
        return value.copy()
    if type(value) is SimpleNamespace:
        return SimpleNamespace(**copied(vars(value)))
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.clone() if hasattr(value, "clone") else value


def difference(expected: Any, got: Any, tolerance: float = 0.0) -> Difference | None:
    """None if `got` is what was expected, else how it differs.

    Raises TypeError if `expected` can't be compared: that is a fault of the exercise, not of the learner.
    """
    if isinstance(expected, Tensor):
        return _tensor_difference(expected, got, tolerance)
    if isinstance(expected, SEQUENCES):
        return _sequence_difference(expected, got, tolerance)
    if isinstance(expected, dict):
        return _dict_difference(expected, got, tolerance)
    if isinstance(expected, (set, frozenset)):
        if not isinstance(got, (set, frozenset)):
            return _wrong_type("a set", got)
        return None if set(expected) == set(got) else Difference("The elements of the set differ.")
    if not isinstance(expected, SCALARS):
        raise TypeError(f"an expected result can't have the type {type(expected).__name__}")
    return _scalar_difference(expected, got, tolerance)


def unchanged(before: Any, after: Any) -> bool:
    """Whether an argument is the same as before the call. Objects that `copied` doesn't copy count as unchanged."""
    if isinstance(before, SEQUENCES):
        return len(before) == len(after) and all(unchanged(b, a) for b, a in zip(before, after, strict=True))
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(unchanged(before[key], after[key]) for key in before)
    if isinstance(before, SimpleNamespace):
        return unchanged(vars(before), vars(after))
    if isinstance(before, Tensor):
        # equal_nan, and the same inf: what was there before may be anything
        return before.shape == after.shape and torch.allclose(before, after, rtol=0, atol=0, equal_nan=True)
    if isinstance(before, (*SCALARS, set, bytearray)):
        return bool(before == after)
    return True


def _scalar_difference(expected: Any, got: Any, tolerance: float) -> Difference | None:
    if isinstance(got, Tensor) and isinstance(expected, (bool, int, float)) and got.numel() == 1:
        text = "It is a tensor with one element, not a plain number: .item() gives the number."
        return Difference(text, wrong_kind=True)
    if isinstance(expected, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
        if math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance):
            return None
        return Difference(f"It is off by {abs(got - expected):.3g}.")
    if type(expected) is int and isinstance(got, float) and got == expected:
        text = "The value is right, but it is a float where a whole number (int) is expected."
        return Difference(text, wrong_kind=True)
    if type(got) is not type(expected):
        return _wrong_type(type_in_words(expected), got)
    return None if got == expected else Difference("The values differ.")


def _tensor_difference(expected: Tensor, got: Any, tolerance: float) -> Difference | None:
    if not isinstance(got, Tensor):
        wrong = _wrong_type("a tensor", got)
        return replace(wrong, text=wrong.text + _right_otherwise(expected, _as_tensor(got), tolerance))
    if got.shape != expected.shape:
        return Difference(f"The shape is {list(got.shape)}, not {list(expected.shape)}.")
    if got.dtype != expected.dtype:
        text = f"The dtype is {_dtype(got)}, not {_dtype(expected)}."
        return Difference(text + _right_otherwise(expected, got, tolerance), wrong_kind=True)
    got, expected = got.detach().cpu(), expected.detach().cpu()
    # NaN equals NaN, so that a mistake that gives it is recognised; no expected result holds one.
    close = torch.isclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return None
    where = [int(i) for i in (~close).nonzero()[0]]
    counted = f"{int((~close).sum())} of {close.numel()} elements differ"
    at = tuple(where)
    return Difference(f"{counted}, first at {where}: {got[at].item():.6g}, not {expected[at].item():.6g}.")


def _as_tensor(value: Any) -> Tensor | None:
    """A tensor of the content of lists, if they can form one."""
    try:
        of_tensors = isinstance(value, SEQUENCES) and bool(value) and isinstance(value[0], Tensor)
        return torch.stack(list(value)) if of_tensors else torch.tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _right_otherwise(expected: Tensor, got: Tensor | None, tolerance: float) -> str:
    """A remark for learners who have only the type wrong."""
    if got is None or got.shape != expected.shape:
        return ""
    return "" if _tensor_difference(expected, got.to(expected.dtype), tolerance) else " The values are right."


def _sequence_difference(expected: list[Any] | tuple[Any, ...], got: Any, tolerance: float) -> Difference | None:
    if isinstance(got, Iterator):
        text = f"It is a {type(got).__name__}, which has computed nothing yet: put list(...) around it."
        return Difference(text, wrong_kind=True)
    if not isinstance(got, SEQUENCES):
        return _wrong_type(type_in_words(expected), got)
    for index, (e, g) in enumerate(zip(expected, got, strict=False)):
        inner = difference(e, g, tolerance)
        if inner is not None:
            place = f"The first difference is at [{index}]. " if len(expected) > 1 else ""
            return replace(inner, text=place + inner.text)
    if len(got) != len(expected):
        return Difference(f"Its length is {len(got)}, not {len(expected)}.")
    return None


def _dict_difference(expected: dict[Any, Any], got: Any, tolerance: float) -> Difference | None:
    if not isinstance(got, dict):
        return _wrong_type("a dict", got)
    for key, value in expected.items():
        if key not in got:
            return Difference(f"The key {key!r} is missing.")
        inner = difference(value, got[key], tolerance)
        if inner is not None:
            return replace(inner, text=f"At the key {key!r}: {inner.text}")
    surplus = [key for key in got if key not in expected]
    return Difference(f"The key {surplus[0]!r} should not be there.") if surplus else None


def _wrong_type(expected: str, got: Any) -> Difference:
    return Difference(f"It is {type_in_words(got)}, where {expected} is expected.", wrong_kind=True)


def type_in_words(value: Any) -> str:
    """Its type in a sentence: "a list", "an int"."""
    if value is None:
        return "None"
    name = {"Tensor": "tensor"}.get(type(value).__name__, type(value).__name__)
    return f"{'an' if name[0] in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
