"""The source of a learner's function, with all that it needs to run elsewhere."""

from __future__ import annotations

import ast
import builtins
import dis
import importlib
import inspect
import linecache
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from llmlesson.errors import LessonError


class NoSource(Exception):
    """The text of a function isn't known, for example if it wasn't written in a notebook or file."""


def own_source(function: Any, names: dict[str, Any]) -> str:
    """The text of a function or class, after the imports, constants and functions that it uses from around it.

    names: the names around it, as in a notebook, and their values. Raises NoSource, and LessonError if it needs
    something that can't be written down, such as a tensor or an engine.
    """
    imports: dict[str, None] = {}
    constants: dict[str, None] = {}
    definitions: dict[str, str] = {}
    _collect(function.__name__, function, names, imports, constants, definitions)
    return "\n\n\n".join(part for part in ("\n".join((*imports, *constants)), *definitions.values()) if part) + "\n"


def _collect(
    name: str,
    thing: Any,
    names: dict[str, Any],
    imports: dict[str, None],
    constants: dict[str, None],
    definitions: dict[str, str],
) -> None:
    source = _text_of(thing)
    if thing.__name__ != name:
        raise LessonError(f"`{name}` is another name for {thing.__name__}: use the same name in both places.")
    definitions[name] = ""  # so that a function that calls itself is met once
    for needed in _free_names(source):
        if needed in definitions or (needed not in names and hasattr(builtins, needed)):
            continue
        if needed not in names:
            raise LessonError(f"it uses `{needed}`, which isn't defined.")
        value = names[needed]
        if isinstance(value, ModuleType):
            imports[_import(needed, value)] = None
        elif _is_written_here(value, names):
            try:
                _collect(needed, value, names, imports, constants, definitions)
            except NoSource:
                raise LessonError(f"it uses `{needed}`, whose text can't be found.") from None
        elif getattr(value, "__module__", None) == "my_engine":
            raise LessonError(f"it uses `{needed}` from my_engine.py: write it out, or put it into a cell here.")
        elif _importable(value):
            alias = "" if value.__name__ == needed else f" as {needed}"
            imports[f"from {value.__module__} import {value.__name__}{alias}"] = None
        elif _is_constant(value):
            constants[f"{needed} = {value!r}"] = None
        else:
            raise LessonError(
                f"it uses `{needed}`, a {type(value).__name__} that exists only in this notebook. Pass it as an "
                "argument, or compute it inside."
            )
    del definitions[name]
    definitions[name] = source  # behind what it needs


def _text_of(thing: Any) -> str:
    """The text of a function or class, from the cell or file that it was written in."""
    code = _code_of(thing)
    if code is None or code.co_freevars:
        raise NoSource
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        raise NoSource from None
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [node for node in tree.body if isinstance(node, kinds) and node.name == thing.__name__]
    if not found:
        raise NoSource
    node = found[-1]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "".join(lines[first - 1 : node.end_lineno]).rstrip()


def _code_of(thing: Any) -> CodeType | None:
    """The code of a function, or of one of a class's methods."""
    if inspect.isclass(thing):
        functions = [value for value in vars(thing).values() if isinstance(value, FunctionType)]
        return functions[0].__code__ if functions else None
    return getattr(thing, "__code__", None)


def _free_names(source: str) -> list[str]:
    """Names that a definition uses from around it, in the order in which it uses them."""
    code = compile(source, "<part>", "exec")
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME"}
    return list(dict.fromkeys(name for name in _loaded_names(code) if name not in own))


def _loaded_names(code: CodeType) -> Iterator[str]:
    stored: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            stored.add(step.argval)
        elif step.opname == "LOAD_GLOBAL" or (step.opname == "LOAD_NAME" and step.argval not in stored):
            if step.argval not in ("__name__", "__build_class__", "__annotations__"):
                yield step.argval
        elif isinstance(step.argval, CodeType):
            yield from _loaded_names(step.argval)


def _import(alias: str, module: ModuleType) -> str:
    return f"import {module.__name__}" + ("" if module.__name__ == alias else f" as {alias}")


def _is_written_here(value: Any, names: dict[str, Any]) -> bool:
    return (isinstance(value, FunctionType) or inspect.isclass(value)) and value.__module__ == names.get("__name__")


def _importable(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return False
    try:
        return getattr(importlib.import_module(module), name, None) is value
    except ImportError:
        return False


def _is_constant(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, RuntimeError):
        return False
