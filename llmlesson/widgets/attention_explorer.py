"""Follow one token through attention, step by step, in any layer and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets

from llmlesson.views import attention as view
from llmlesson.views.markup import announced, folded
from llmlesson.widgets.attention_session import LIMIT, AttentionSession
from llmlesson.widgets.base import LessonWidget, engine_lock

if TYPE_CHECKING:
    from llmlesson.engine import Engine

BUSY = 0.4  # of its attention for other words: what the head to begin with should give


class AttentionExplorer(LessonWidget):
    """One token's way through a head: it asks, compares, shares, takes, and adds. Shown as a cell's last line.

    text: a prompt, put into the chat template. token, layer, head: where to begin; at the last token if not given.
    Raises LessonError for a prompt that the engine can't read.
    """

    def __init__(self, engine: Engine, text: str, token: int | None = None, layer: int = 0, head: int = 0) -> None:
        super().__init__()
        self._engine = engine
        with engine_lock(engine):
            self.session = AttentionSession(engine, text)
        self.token = len(self.session.ids) - 1 if token is None else token
        self.layer, self.head, self.phase = layer, head, view.LAST
        self._look()

    def to_html(self) -> str:
        return announced(self._plain()) + self._map() + view.attention_picture(self._look()) + self._table()

    def _plain(self) -> str:
        return view.in_words(self._look(), self.phase)

    def _look(self) -> view.Look:
        return self.session.look(self.token, self.layer, self.head)

    def _map(self) -> str:
        return view.head_map(self.session.others(self.token), self.layer, self.head)

    def _table(self) -> str:
        return folded("The numbers of the picture as a table", view.attention_table(self._look()))

    def _build(self) -> list[ipywidgets.Widget]:
        s, c = self.session, self._engine.config
        wide = {"style": {"description_width": "initial"}}
        number = ipywidgets.BoundedIntText
        self._prompt = ipywidgets.Text(
            s.text, description="prompt", continuous_update=False, layout=ipywidgets.Layout(width="98%"), **wide
        )
        layers, heads = c.num_hidden_layers, c.num_attention_heads
        self._token = number(self.token, min=0, max=len(s.ids) - 1, description="token", **wide)
        self._layer = number(self.layer, min=0, max=layers - 1, description=f"layer (0 to {layers - 1})", **wide)
        self._head = number(self.head, min=0, max=heads - 1, description=f"query head (0 to {heads - 1})", **wide)
        self._watch(self._prompt, self._take)
        self._watch(self._token, lambda token: setattr(self, "token", token))
        self._watch(self._layer, lambda layer: setattr(self, "layer", layer))
        self._watch(self._head, lambda head: setattr(self, "head", head))
        buttons = [
            self._button("Step through", self._step),
            self._button("Back", self._back),
            self._button("Show all", self._all),
            self._button("◀ token", lambda: self._move(token=-1)),
            self._button("token ▶", lambda: self._move(token=1)),
            self._button("◀ layer", lambda: self._move(layer=-1)),
            self._button("layer ▶", lambda: self._move(layer=1)),
            self._button("Next busy head", self._busy),
        ]
        self._pictures = {part: ipywidgets.HTML() for part in ("headline", "map", "picture", "table")}
        p, wrap = self._pictures, ipywidgets.Layout(flex_flow="row wrap")
        return [
            self._prompt,
            ipywidgets.HBox([self._token, self._layer, self._head], layout=wrap),
            ipywidgets.HBox(buttons, layout=wrap),
            p["headline"],
            p["map"],
            p["picture"],
            p["table"],
        ]

    def _show(self) -> None:
        self._token.max = len(self.session.ids) - 1
        self._token.value, self._layer.value, self._head.value = self.token, self.layer, self.head
        p = self._pictures
        p["headline"].value = announced(self._plain())
        p["map"].value = self._map()
        p["picture"].value = view.attention_picture(self._look(), self.phase)
        p["table"].value = self._table()

    def _take(self, text: str) -> str:
        with engine_lock(self._engine):
            self.session = AttentionSession(self._engine, text)
        self.token = min(self.token, len(self.session.ids) - 1)
        more = self.session.total - len(self.session.ids)
        return f"Of this prompt the first {LIMIT} tokens are shown; {more:,} more follow." if more else ""

    def _step(self) -> None:
        self.phase = 1 if self.phase == view.LAST else self.phase + 1

    def _back(self) -> None:
        self.phase = max(self.phase - 1, 0)

    def _all(self) -> None:
        self.phase = view.LAST

    def _move(self, token: int = 0, layer: int = 0) -> None:
        self.token = min(max(self.token + token, 0), len(self.session.ids) - 1)
        self.layer = min(max(self.layer + layer, 0), self._engine.config.num_hidden_layers - 1)

    def _busy(self) -> str:
        """Go on to the next head that gives much of its attention to other words."""
        others = self.session.others(self.token)
        heads = len(others[0])
        here, every = self.layer * heads + self.head, len(others) * heads
        for place in (*range(here + 1, every), *range(here)):
            if others[place // heads][place % heads] >= BUSY:
                self.layer, self.head = divmod(place, heads)
                return f"Layer {self.layer}, head {self.head} gives {others[self.layer][self.head]:.0%} to other words."
        return "No head gives this token much of other words."
