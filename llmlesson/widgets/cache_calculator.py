"""How large a KV cache is, and what fits: model, context, batch, dtype and card; two models side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ipywidgets

from llmlesson.errors import LessonError
from llmlesson.sizing import DTYPES, fit, get_gpu, gpu_table, kv_cache, model_table
from llmlesson.sizing.models import table_name
from llmlesson.sizing.units import MAX_BATCH
from llmlesson.views import calculator as view
from llmlesson.views.markup import announced
from llmlesson.widgets import typed
from llmlesson.widgets.base import LessonWidget
from llmlesson.widgets.model_choice import readable, spec_of

CONTEXT = 8192
GPU = "H100-80GB"
UNCOUNTED = (
    "What fits depends on the number of weights, which is not recorded for this model: press “Count the weights”."
)


@dataclass(frozen=True)
class Question:
    """What is asked. Models are named as in `CalculatorSession.models`."""

    model: str
    other: str | None = None  # a second model, to compare
    tokens: int = CONTEXT
    batch: int = 1
    dtype: str = "bf16"
    gpu: str = GPU


class CalculatorSession:
    """A question about sizes and its answers. No widget, no engine; no torch either, for models of the table."""

    def __init__(self, config_or_name: Any) -> None:
        spec = spec_of(config_or_name)
        self.models: dict[str, Any] = {name: name for name in model_table()}
        name = table_name(config_or_name) if isinstance(config_or_name, str) else None
        self._counted = set(self.models)  # models whose weights are known
        if name is None:
            name = spec.name if spec.name not in self.models else f"{spec.name} (given)"
            self.models = {name: readable(config_or_name), **self.models}
        self.question = Question(name, tokens=min(CONTEXT, spec.max_context or CONTEXT))
        self.answers = self._answer(self.question)

    def ask(self, **changes: Any) -> None:
        """Change one or more fields of the question. If that raises LessonError, question and answers are unchanged."""
        question = replace(self.question, **changes)
        answers = self._answer(question)
        self.question, self.answers = question, answers

    @property
    def uncounted(self) -> list[str]:
        """The models of the question whose weights are not known yet."""
        chosen = (self.question.model, self.question.other)
        return [name for name in chosen if name is not None and name not in self._counted]

    def count_weights(self) -> None:
        """Count the weights of the question's models (loads torch and transformers, which takes seconds)."""
        before = set(self._counted)
        self._counted |= set(self.uncounted)
        try:
            self.ask()
        except BaseException:
            self._counted = before
            raise

    def _answer(self, question: Question) -> list[view.Answer]:
        names = [name for name in (question.model, question.other) if name is not None]
        for name in names:
            if name not in self.models:
                raise LessonError(f"{name!r} is not one of this calculator's models: {', '.join(self.models)}.")
        get_gpu(question.gpu)
        return [self._answer_one(name, question) for name in names]

    def _answer_one(self, name: str, question: Question) -> view.Answer:
        model, q = self.models[name], question
        size = replace(kv_cache(model, q.tokens, q.batch, q.dtype), name=name)
        curve = tuple((2**p, kv_cache(model, 2**p, q.batch, q.dtype).nbytes) for p in view.POWERS)
        if name not in self._counted:
            return view.Answer(size, curve, None, UNCOUNTED)
        return view.Answer(size, curve, fit(model, q.gpu, kv_dtype=q.dtype, context=q.tokens))


class CacheCalculator(LessonWidget):
    """A calculator for KV caches; shown as a cell's last line.

    config_or_name: as for `llmlesson.sizing.kv_cache`, or an engine, or an engine's `config`. Raises LessonError for
    what names no model.
    """

    def __init__(self, config_or_name: Any) -> None:
        self.session = CalculatorSession(config_or_name)
        super().__init__()

    def to_html(self) -> str:
        return "".join((announced(self._plain()), self._tables(), self._curves(), self._arithmetic()))

    def _plain(self) -> str:
        return view.headline(self.session.answers)

    def _tables(self) -> str:
        return view.size_table(self.session.answers) + view.fit_table(self.session.answers)

    def _curves(self) -> str:
        return view.curves(self.session.answers) + view.curves_table(self.session.answers)

    def _arithmetic(self) -> str:
        return view.arithmetic(self.session.answers)

    def _build(self) -> list[ipywidgets.Widget]:
        question = self.session.question
        wide = {"style": {"description_width": "initial"}}
        names = [(name.rpartition("/")[2], name) for name in self.session.models]
        dropdown, text = ipywidgets.Dropdown, ipywidgets.Text
        controls = {
            "model": dropdown(options=names, value=question.model, description="model", **wide),
            "other": dropdown(
                options=[("nothing", None), *names], value=question.other, description="compare with", **wide
            ),
            "tokens": text(
                value=f"{question.tokens:,}", description="context, tokens", continuous_update=False, **wide
            ),
            "batch": text(value=f"{question.batch:,}", description="batch, sequences", continuous_update=False, **wide),
            "dtype": dropdown(options=DTYPES, value=question.dtype, description="KV dtype", **wide),
            "gpu": dropdown(options=list(gpu_table()), value=question.gpu, description="GPU", **wide),
        }
        read = {"tokens": typed.context, "batch": lambda text: typed.whole(text, "batch", 1, MAX_BATCH)}
        c = {name: self._field(control, partial(self._ask, name, read.get(name))) for name, control in controls.items()}
        self._tokens = controls["tokens"]
        halve = self._quick("Half the context", lambda: self._context(max(1, self.session.question.tokens // 2)))
        double = self._quick("Double the context", lambda: self._context(self.session.question.tokens * 2))
        self._count = self._button("Count the weights", self._count_weights, "Counting the weights (loads torch) …")
        wrap = ipywidgets.Layout(flex_flow="row wrap")
        rows = [
            ipywidgets.HBox([c["model"], c["other"]], layout=wrap),
            ipywidgets.HBox([c["tokens"], halve, double, c["batch"]], layout=wrap),
            ipywidgets.HBox([c["dtype"], c["gpu"], self._count], layout=wrap),
        ]
        self._pictures = {part: ipywidgets.HTML() for part in ("headline", "tables", "curves", "arithmetic")}
        return [*rows, *self._pictures.values()]

    def _ask(self, field: str, read: Callable[[str], int] | None, value: Any) -> None:
        self.session.ask(**{field: value if read is None else read(value)})

    def _context(self, tokens: int) -> None:
        """Act as if somebody had typed it."""
        self._tokens.value = f"{tokens:,}"

    def _count_weights(self) -> str:
        self.session.count_weights()
        return "The weights are counted."

    def _show(self) -> None:
        self._count.layout.display = None if self.session.uncounted else "none"
        self._pictures["headline"].value = announced(self._plain())
        self._pictures["tables"].value = self._tables()
        self._pictures["curves"].value = self._curves()
        self._pictures["arithmetic"].value = self._arithmetic()
