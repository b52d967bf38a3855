"""Watch a prompt being read: the cache fills, tokens look at each other, the next token stands ready."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import ipywidgets

from llmlesson.sizing.units import both_units
from llmlesson.views import prefill as view
from llmlesson.views.markup import announced
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
        # Numbers rather than lists: while a closed list has the focus, JupyterLab takes the arrow keys for its own.
        number = ipywidgets.BoundedIntText
        self._prompt = ipywidgets.Textarea(
            s.text, description="prompt", continuous_update=False, rows=2, layout=ipywidgets.Layout(width="98%"), **wide
        )
        self._chunk = number(s.chunk, min=1, max=LIMIT, description="tokens in a chunk", **wide)
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        self._layer = number(self.layer, min=0, max=layers - 1, description=f"layer (0 to {layers - 1})", **wide)
        self._head = number(self.head, min=0, max=heads - 1, description=f"query head (0 to {heads - 1})", **wide)
        self._first = number(0, min=0, max=0, description="columns from position", **wide)
        self._watch(self._prompt, self._take)
        self._watch(self._chunk, self._rechunk)
        self._watch(self._layer, lambda layer: setattr(self, "layer", layer))
        self._watch(self._head, lambda head: setattr(self, "head", head))
        self._watch(self._first, lambda first: setattr(self, "first", first))
        buttons = [
            self._button("Start over", self._reset),
            self._button("Next chunk", self._next, "Reading a chunk …"),
            self._button("Read the rest", self._rest, "Reading …"),
            self._stop_button(),
        ]
        wrap = ipywidgets.Layout(flex_flow="row wrap")
        self._pictures = {part: ipywidgets.HTML() for part in ("headline", "grid", "next", "attention", "comparison")}
        p = self._pictures
        return [
            self._prompt,
            ipywidgets.HBox([self._chunk, *buttons, self._first], layout=wrap),
            p["headline"],
            p["grid"],
            p["comparison"],
            p["next"],
            ipywidgets.HBox([self._layer, self._head], layout=wrap),
            p["attention"],
        ]

    def _show(self) -> None:
        s = self.session
        self._chunk.value = s.chunk
        self._first.max = max(len(s.ids) - view.WINDOW, 0)
        self._first.layout.display = None if self._first.max else "none"
        self._first.value = self.first
        self._show_cache()
        self._pictures["next"].value = self._next_tokens()
        self._pictures["attention"].value = self._attention()
        self._pictures["comparison"].value = self._comparison()

    def _show_cache(self) -> None:
        self._pictures["headline"].value = announced(self._plain())
        self._pictures["grid"].value = self._grid()

    def _take(self, text: str) -> str:
        self.session.start(text)
        self.first = 0
        return f"A new prompt of {self.session.total:,} tokens. Nothing is read yet: press “Next chunk”."

    def _rechunk(self, chunk: int) -> str:
        self.session.set_chunk(chunk)
        self.first = 0
        return "The cache is empty. Press “Next chunk”, or “Read the rest”."

    def _reset(self) -> str:
        self.session.reset()
        self.first = 0
        return "The cache is empty."

    def _read(self) -> None:
        """One chunk; at the prompt's end the comparison too. The columns follow."""
        s = self.session
        with engine_lock(s.engine):
            s.read_chunk()
            s.compare()
        start, stop = s.passes[-1]
        if not self.first <= start < stop <= self.first + view.WINDOW:
            self.first = max(stop - view.WINDOW, 0)

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
