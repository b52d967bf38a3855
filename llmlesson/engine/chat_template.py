"""A model's chat template: a Jinja program that comes with the model, written by whoever made it.

It runs in Jinja's sandbox, without access to files or modules, and its output is limited. A template that never ends
can be interrupted (Ctrl-C, or the notebook's stop button).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace

from llmlesson.errors import LessonError
from llmlesson.files.model_files import MB, read_text

MAX_TEMPLATE = MB
MAX_TEXT = 10 * MB  # characters, some millions of tokens: more than any model reads


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the model's own words for training; here only the content counts."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(Namespace):
    """Jinja's namespace, without names that lead to Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that a template may name a value "self"
        self, *given = args
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"it uses the name {name!r}, which is not allowed")


class _Sandbox(ImmutableSandboxedEnvironment):
    """What transformers offers to chat templates, minus operators that could make a huge value in one step."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _tojson
        self.globals.update(raise_exception=_raise, strftime_now=_strftime_now, namespace=_Namespace)
        del self.globals["lipsum"]  # random text of any length

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "*" and not numbers:
            sequence, times = (left, right) if isinstance(right, int) else (right, left)
            if len(sequence) * times > MAX_TEXT:
                raise TemplateError("it repeats a text too many times")
        elif operator == "**" and not (numbers and abs(right) < 100 and abs(left) < 1e9):
            raise TemplateError("it computes a power that is too large")
        return super().call_binop(context, operator, left, right)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    return _Sandbox().from_string(template)


def render(template: str, messages: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """The text of a conversation, ready for the assistant's answer. `names`: the texts of "bos_token" and so on.

    Raises LessonError for a template that can't take these messages, is malformed, or writes too much.
    """
    try:
        parts, length = [], 0
        given = {**names, "messages": list(messages), "tools": None, "documents": None, "add_generation_prompt": True}
        for part in _compiled(template).generate(given):
            parts.append(part)
            length += len(part)
            if length > MAX_TEXT:
                raise TemplateError(f"it writes more than {MAX_TEXT:,} characters")
        return "".join(parts)
    except Exception as error:  # a template can raise anything, for example for a role that it doesn't know
        reason = str(error) or type(error).__name__
        raise LessonError(f"The model's chat template can't take these messages: {reason[:500]}") from error


def read_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template in a model's folder, or None. settings: the content of tokenizer_config.json."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return read_text(file, MAX_TEMPLATE)
    template = settings.get("chat_template")
    if isinstance(template, list):  # several by name
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None


def _raise(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **settings: Any) -> str:
    """Jinja's own filter would escape characters for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **settings)
