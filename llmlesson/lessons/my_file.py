"""`my_engine.py`: the functions of a learner that passed their checks, as a file that they own.

The file is beside the notebooks, and git ignores it. Each part is the source as it was written in the lesson, with the
imports that it needs. Learners can read, change, run, and delete the file.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import tempfile
from pathlib import Path
from types import CodeType
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.lessons.compare import type_in_words
from llmlesson.lessons.exercise import Function, find_exercise
from llmlesson.lessons.own_source import NoSource, own_source

NAME = "my_engine.py"
# The exercises whose functions make an engine, and what each does there.
PARTS = {
    "causal-mask": "which keys a token may see",
    "keys-and-values": "K and V of a layer",
    "first-token": "scores, and the likeliest token",
    "answer-loop": "the first loop, until generate takes its place",
    "generation-loop": "the loop, and why it ends",
    "top-p": "what a draw may choose from",
    "whole-characters": "text out of a stream of tokens",
    "kv-cache": "the memory for K and V",
}
HEAD = '''"""My engine: what I wrote in the lessons, and what passed.

    python my_engine.py "Explain quantum computing like I'm ten."

answers a prompt with these functions, and with the course's own for those that are still missing. In a notebook,
lessons.my_engine() does the same. A check that passes adds its function, or puts it in place of the one before. To
begin anew, delete this file.
"""
'''
TAIL = """if __name__ == "__main__":
    from llmlesson.lessons.own_engine import main

    main(__file__)
"""
MARK = "# ==== "
SECTION = re.compile(rf"^{MARK}(.+?) ====\n", re.MULTILINE)
RUN = "run"


def path_of_mine() -> Path:
    """The path of the file: beside the notebook that is running."""
    return Path.cwd() / NAME


def keep(exercise: str, function: Function, passes: Any) -> tuple[str, str] | None:
    """Put a function that passed into the file. Returns (label, text) to tell the learner; None if there is nothing.

    passes(function): whether a function passes the check. It is called with the function made from the written text.
    """
    if exercise not in PARTS:
        return None
    function = inspect.unwrap(function)
    path = Path(NAME)
    try:
        path = path_of_mine()
        wanted = find_exercise(exercise).function_name
        if function.__name__ != wanted:
            raise LessonError(f"the function must be called {wanted} there, but yours is {function.__name__}.")
        source = own_source(function, getattr(function, "__globals__", {}))
        if not passes(_made_of(source, function.__name__)):
            raise LessonError("on its own it behaves differently: it needs something from this notebook.")
        write_part(path, exercise, source)
    except (NoSource, AttributeError):  # not written in a notebook or file, or no plain function
        return None
    except LessonError as error:
        return "not kept", f"It is right, but {NAME} stays as it was: {error}"
    except OSError as error:
        return (
            "not kept",
            f"It is right, but {path} can't be written ({error.strerror}). The lesson goes on without it.",
        )
    return "kept in", f"{NAME}, {count(path)} of {len(PARTS)} parts of an engine. lessons.my_engine() runs it."


def count(path: Path) -> int:
    return sum(name in PARTS for name in read_parts(path))


def read_parts(path: Path) -> dict[str, str]:
    """The text of each part in the file, by exercise. Raises LessonError for a file that is not Python."""
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except UnicodeDecodeError:
        raise LessonError(f"{path.name} is not UTF-8 text. {_way_out(path)}") from None
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise LessonError(f"{path.name} is not valid Python any more ({line}). {_way_out(path)}") from None
    found = SECTION.split(text)
    return {name: part.strip() for name, part in zip(found[1::2], found[2::2], strict=True) if name != RUN}


def write_part(path: Path, exercise: str, source: str) -> None:
    """Add a part, or replace the earlier one, all or nothing.

    Raises LessonError if it defines a name that another part defines differently, and for a broken file; OSError if
    the folder can't be written.
    """
    parts = read_parts(path)
    if parts.get(exercise) == source.strip():
        return
    mine = _definitions(source)
    for other, text in parts.items():
        for name, definition in _definitions(text).items():
            if other != exercise and name in mine and mine[name] != definition:
                raise LessonError(f"the part {other} already has a different `{name}`. Rename yours.")
    parts[exercise] = source.strip()
    order = [*(name for name in PARTS if name in parts), *(name for name in parts if name not in PARTS)]
    sections = [f"{MARK}{name} ====\n{parts[name]}\n" for name in order]
    _write(path, "\n\n".join([HEAD, *sections, f"{MARK}{RUN} ====\n{TAIL}"]))


def load_parts(path: Path) -> dict[str, Any]:
    """The learner's functions, by exercise. Raises LessonError for a file that doesn't run."""
    if not path.exists():
        return {}
    read_parts(path)
    namespace: dict[str, Any] = {"__name__": "my_engine", "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    except Exception as error:
        raise LessonError(f"{path.name} can't be run ({type(error).__name__}: {error}). {_way_out(path)}") from error
    found = {}
    for exercise in PARTS:
        function = namespace.get(find_exercise(exercise).function_name)
        if function is None:
            continue
        if not callable(function):
            name = find_exercise(exercise).function_name
            raise LessonError(f"In {path.name}, {name} is {type_in_words(function)}, not a function. {_way_out(path)}")
        found[exercise] = function
    return found


def _made_of(source: str, name: str) -> Function:
    namespace: dict[str, Any] = {"__name__": "my_engine"}
    code: CodeType = compile(source, f"<{NAME}>", "exec")
    try:
        exec(code, namespace)
    except Exception as error:
        raise LessonError(f"on its own it doesn't run ({type(error).__name__}: {error}).") from error
    function: Function = namespace[name]
    return function


def _definitions(source: str) -> dict[str, str]:
    """Functions, classes and constants at the top of a text."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = ast.unparse(node)
        elif isinstance(node, ast.Assign):
            found.update({name.id: ast.unparse(node) for name in node.targets if isinstance(name, ast.Name)})
    return found


def _write(path: Path, text: str) -> None:
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _way_out(path: Path) -> str:
    return f"Mend it, or delete it and run the checks of the lessons again: each that passes writes its part. ({path})"
