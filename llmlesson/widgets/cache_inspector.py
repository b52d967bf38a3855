"""A look into the KV cache: every value of every layer and head, its bytes, and what a step changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets

from llmlesson.views import cache as view
from llmlesson.views.text import visible
from llmlesson.widgets import typed
from llmlesson.widgets.base import LessonWidget, engine_lock
from llmlesson.widgets.cache_session import CacheSession
from llmlesson.widgets.spelling import spelled

if TYPE_CHECKING:
    from llmlesson.engine import Engine

WIDE = {"description_width": "initial"}


class CacheInspector(LessonWidget):
    """The cache of a request: choose a layer, a head, K or V; step, and see what was added.

    prompt: text, put into the chat template unless `chat` is False, or a list of ids. It is read here, and a prompt
    that can't be read raises LessonError.
    """

    def __init__(self, engine: Engine, prompt: str | Sequence[int], chat: bool = True) -> None:
        super().__init__()
        self._engine_lock = engine_lock(engine)
        self._tokenizer = engine.tokenizer
        self._config = engine.config
        self.layer, self.head, self.kind = 0, 0, "K"
        self.last: int | None = None  # the position at the end of the heatmap; None: the newest
        with self._engine_lock:
            self.session = CacheSession(engine, prompt, chat)

    def to_html(self) -> str:
        return "".join(self._pictures())

    def _plain(self) -> str:
        cache = self.session.cache
        return f"KV cache: {cache.length} positions, {cache.nbytes:,} bytes in {cache.num_layers} layers"

    def _build(self) -> list[ipywidgets.Widget]:
        steps = [
            self._button("Step", self._do("step"), "Reading one token …").add_class("main"),
            self._button("Back", self._do("back")),
            self._button("Reset", self._do("reset")),
        ]
        layers, heads = range(self._config.num_hidden_layers), range(self._config.num_key_value_heads)
        choices = [
            self._dropdown("layer", layers, "Layer"),
            self._dropdown("head", heads, "Head"),
            self._dropdown("kind", ["K", "V"], "Values"),
        ]
        self._position = ipywidgets.Text(
            "-1",
            description="Up to position (-1: newest)",
            continuous_update=False,
            style=WIDE,
            layout={"width": "270px"},
        )
        position = self._field(self._position, self._move)
        self._places = [ipywidgets.HTML() for _ in self._pictures()]
        row = {"flex_flow": "row wrap", "align_items": "center"}
        return [
            ipywidgets.HBox([*steps, *choices, position], layout=row),
            self._status,
            *self._places,
        ]

    def _show(self) -> None:
        for place, picture in zip(self._places, self._pictures(), strict=True):
            place.value = picture

    def _dropdown(self, name: str, options: Sequence[Any], label: str) -> ipywidgets.Widget:
        control = ipywidgets.Dropdown(
            options=list(options), value=getattr(self, name), description=label, style=WIDE, layout={"width": "130px"}
        )
        return self._watch(control, lambda value: setattr(self, name, value))

    def _do(self, action: str) -> Callable[[], str]:
        """An action of the session, then the newest position in view."""

        def work() -> str:
            with self._engine_lock:
                getattr(self.session, action)()
            self._position.value = "-1"
            self.last = None
            return f"{self.session.change.name}: {self.session.cache.length} positions in the cache."

        return work

    def _move(self, text: str) -> None:
        position = typed.whole(text, "position", -1, self.session.cache.length - 1)
        self.last = None if position == -1 else position

    def _pictures(self) -> list[str]:
        s, change = self.session, self.session.change
        most = view.columns_that_fit(self._config.head_dim)
        first, values = s.window(self.kind, self.layer, self.head, self.last, most)
        texts = [spelled(self._tokenizer, i) for i in s.ids[first : first + len(values)]]
        label = f"{self.kind} of layer {self.layer}, head {self.head}"
        shown = f"positions {first} to {first + len(values) - 1} of {s.cache.length}"
        newest = f"{self.kind} of position {first + len(values) - 1}, {visible(texts[-1])}"
        return [
            view.change(change.name, change.before, change.after, change.nbytes, change.kept),
            view.sizes(s.formula, s.predicted, s.measured, s.by_layer()),
            view.head_map(
                s.strength(self.kind), (self.layer, self.head), f"mean size of the values in {self.kind}", self.kind
            ),
            view.heatmap(
                values,
                first,
                texts,
                range(change.before, change.after),
                f"{label}, {shown}",
                self.kind,
                s.scale(self.kind, self.layer, self.head),
            ),
            view.numbers(values[-1], newest),
        ]
