"""Send a prompt, and watch what happens to it: tokens, time, the KV cache, the answer as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets

from llmlesson.views import request as view
from llmlesson.widgets.base import LessonWidget, engine_lock
from llmlesson.widgets.request_session import MOST_TOKENS, RequestSession

if TYPE_CHECKING:
    from llmlesson.engine import Engine, Sampling

ENDS = {
    "eos": "The model ended its answer.",
    "length": f"After {MOST_TOKENS} tokens we stop asking for more.",
}


class RequestExplorer(LessonWidget):
    """A box for a prompt, and a button that sends it to the engine. Nothing is sent before a click.

    prompt: text, which is in the box at first. sampling: how tokens are chosen; greedy if not given.
    """

    def __init__(self, engine: Engine, prompt: str, sampling: Sampling | None = None) -> None:
        super().__init__()
        self._engine = engine
        self._engine_lock = engine_lock(engine)
        self._first_prompt = prompt
        self._sampling = sampling
        self.session: RequestSession | None = None  # of the last prompt that was sent

    def to_html(self) -> str:
        return "".join(self._pictures())

    def _plain(self) -> str:
        s = self.session
        if s is None:
            return f"Nothing is sent yet. Prompt: {self._first_prompt}"
        return f"{len(s.ids)} tokens of prompt, {len(s.steps)} of answer: {s.text}"

    def _build(self) -> list[ipywidgets.Widget]:
        self._prompt = ipywidgets.Textarea(
            value=self._first_prompt,
            description="Your prompt",
            rows=2,
            style={"description_width": "initial"},
            layout={"flex": "1 1 420px", "width": "auto"},
        )
        send = self._button("Send", self._send, "On its way …").add_class("main")
        self._controls.append(self._prompt)
        self._places = [ipywidgets.HTML() for _ in self._pictures()]
        row = {"flex_flow": "row wrap", "align_items": "center"}
        return [ipywidgets.HBox([self._prompt, send, self._stop_button()], layout=row), self._status, *self._places]

    def _show(self) -> None:
        for place, picture in zip(self._places, self._pictures(), strict=True):
            place.value = picture

    def _send(self) -> str:
        self.session = session = RequestSession(self._engine, self._prompt.value, self._sampling)
        self._refresh()
        self._say(f"Prefill: reading {len(session.ids)} tokens …")
        steps = session.run()
        while not self._stopped:
            with self._engine_lock:
                step = next(steps, None)
            if step is None:
                break
            self._refresh()
            self._say(f"Token {len(session.steps)} of the answer.")
        made = f"{len(session.ids)} tokens read, {len(session.steps)} written."
        return f"{made} {ENDS.get(session.finish_reason or '', 'Stopped.')}"

    def _pictures(self) -> list[str]:
        s = self.session
        if s is None:
            return [view.unsent(), "", ""]
        texts = [self._engine.tokenizer.decode([token], special=True) for token in s.ids]
        written = [self._engine.tokenizer.decode([step.token_id], special=True) for step in s.steps]
        drawn = ""
        if s.steps:
            drawn = view.waterfall(
                s.tokenize_seconds,
                s.steps[0].seconds,
                [step.seconds for step in s.steps[1:]],
                [step.cache_nbytes for step in s.steps],
                len(s.ids),
                written,
            )
        return [view.tokens_line(texts, s.typed, written), view.reply(s.text, s.finish_reason is None), drawn]
