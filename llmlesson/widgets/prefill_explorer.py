"""Watch a prompt being read: the cache fills, tokens look at each other, and the next token is ready."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import ipywidgets

from llmlesson.sizing.units import both_units
from llmlesson.views import prefill as view
from llmlesson.views.markup import announced
from llmlesson.widgets import typed
from llmlesson.widgets.base import LessonWidget, engine_lock
from llmlesson.widgets.prefill_session import LIMIT, PrefillSession

if TYPE_CHECKING:
    from llmlesson.engine import Engine

REDRAW_SECONDS = 0.3  # while chunks are read one after the other


class PrefillExplorer(LessonWidget):
    """Prefill of one prompt, in as many chunks as you like; shown as a cell's last line.

    The first 64 tokens are read at once, so that there is something to see. Raises LessonError for what the engine
    can't read.
    """

    def __init__(self, engine: Engine, text: str) -> None:
        super().__init__()
        self.session = PrefillSession(engine, text)
        self.layer = self.head = 0
        self.first = 0  # position of the first column
        self._read()

    def to_html(self) -> str:
        return announced(self._plain()) + self._grid() + self._comparison() + self._next_tokens() + self._attention()

    def _plain(self) -> str:
        s = self.session
        cut = f" (the first {LIMIT} of {s.total:,} tokens)" if s.total > len(s.ids) else ""
        done = f"{s.read} of {len(s.ids)} tokens{cut} read in {len(s.passes)} pass{'' if len(s.passes) == 1 else 'es'}"
        same = f" Against one pass: {s.comparison.in_words}." if s.comparison else ""
        return f"{done}. The KV cache holds {s.cache.nbytes:,} bytes ({both_units(s.cache.nbytes)}).{same}"

    def _columns(self) -> view.Columns:
        return self.session.columns(self.first, view.WINDOW)

    def _grid(self) -> str:
        s, columns = self.session, self._columns()
        keys, values = s.lengths(columns)
        return view.cache_grid(columns, keys, values, s.passes, self.layer, s.cache.nbytes // max(s.read, 1))

    def _attention(self) -> str:
        columns = self._columns()
        weights = self.session.weights(self.layer, self.head, columns)
        kv_head = self.head // self.session.engine.config.group_size
        return view.attention_map(columns, weights, self.layer, self.head, kv_head)

    def _next_tokens(self) -> str:
        s = self.session
        return view.next_tokens(s.candidates(), s.read - 1, s.token_texts[s.read - 1], s.done) if s.read else ""

    def _comparison(self) -> str:
        return view.comparison_table(self.session.comparison) if self.session.comparison else ""

    def _build(self) -> list[ipywidgets.Widget]:
        s, config = self.session, self.session.engine.config
        wide = {"style": {"description_width": "initial"}}
        self._prompt = ipywidgets.Textarea(
            s.text, description="prompt", continuous_update=False, rows=2, layout=ipywidgets.Layout(width="98%"), **wide
        )
        text, choice = ipywidgets.Text, ipywidgets.Dropdown
        short = {**wide, "continuous_update": False, "layout": {"width": "220px"}}
        chunk = self._field(text(f"{s.chunk}", description="tokens in a chunk", **short), self._rechunk)
        layers, heads = range(config.num_hidden_layers), range(config.num_attention_heads)
        narrow = {**wide, "layout": {"width": "160px"}}
        layer = choice(options=layers, value=self.layer, description="layer", **narrow)
        head = choice(options=heads, value=self.head, description="query head", **narrow)
        self._first = text(f"{self.first}", description="columns from position", **short)
        self._first_field = self._field(self._first, self._columns_from)
        self._watch(self._prompt, self._take)
        self._watch(layer, lambda layer: setattr(self, "layer", layer))
        self._watch(head, lambda head: setattr(self, "head", head))
        buttons = [
            self._button("Start over", self._reset),
            self._button("Next chunk", self._next, "Reading a chunk …").add_class("main"),
            self._button("Read the rest", self._rest, "Reading …"),
            self._stop_button(),
        ]
        wrap = ipywidgets.Layout(flex_flow="row wrap")
        self._pictures = {part: ipywidgets.HTML() for part in ("headline", "grid", "next", "attention", "comparison")}
        p = self._pictures
        return [
            self._prompt,
            ipywidgets.HBox([chunk, *buttons, self._first_field], layout=wrap),
            p["headline"],
            p["grid"],
            p["comparison"],
            p["next"],
            ipywidgets.HBox([layer, head], layout=wrap),
            p["attention"],
        ]

    def _show(self) -> None:
        self._first_field.layout.display = None if self._last_first else "none"
        self._show_cache()
        self._pictures["next"].value = self._next_tokens()
        self._pictures["attention"].value = self._attention()
        self._pictures["comparison"].value = self._comparison()

    def _show_cache(self) -> None:
        self._pictures["headline"].value = announced(self._plain())
        self._pictures["grid"].value = self._grid()

    def _take(self, text: str) -> str:
        self.session.start(text)
        self._move_to(0)
        return f"A new prompt of {self.session.total:,} tokens. Nothing is read yet: press “Next chunk”."

    @property
    def _last_first(self) -> int:
        """The last position that can be in the first column."""
        return max(len(self.session.ids) - view.WINDOW, 0)

    def _columns_from(self, text: str) -> None:
        self.first = typed.whole(text, "position", 0, self._last_first)

    def _move_to(self, first: int) -> None:
        """Show the columns from this position on, and say so in the field."""
        self.first = first
        if self._ui is not None:
            self._first.value = f"{first}"

    def _rechunk(self, text: str) -> str:
        self.session.set_chunk(typed.whole(text, "tokens in a chunk", 1, LIMIT))
        self._move_to(0)
        return "The cache is empty. Press “Next chunk”, or “Read the rest”."

    def _reset(self) -> str:
        self.session.reset()
        self._move_to(0)
        return "The cache is empty."

    def _read(self) -> None:
        """One chunk; at the prompt's end the comparison too. The columns follow."""
        s = self.session
        with engine_lock(s.engine):
            s.read_chunk()
            s.compare()
        start, stop = s.passes[-1]
        if not self.first <= start < stop <= self.first + view.WINDOW:
            self._move_to(max(stop - view.WINDOW, 0))

    def _next(self) -> str:
        if self.session.done:
            return "The whole prompt is read. “Start over” empties the cache."
        self._read()
        start, stop = self.session.passes[-1]
        return f"Pass {len(self.session.passes)} read positions {start} to {stop - 1}."

    def _rest(self) -> str:
        s, drawn = self.session, 0.0
        if s.done:
            return "The whole prompt is read. “Start over” empties the cache."
        while not s.done and not self._stopped:
            self._read()
            if time.monotonic() - drawn > REDRAW_SECONDS:
                self._show_cache()
                self._say(f"Reading: {s.read} of {len(s.ids)} tokens …")
                drawn = time.monotonic()
        return f"Read {s.read} of {len(s.ids)} tokens." if s.done else f"Stopped after {s.read} of {len(s.ids)} tokens."
