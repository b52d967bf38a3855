"""Text in, tokens out: as chips, merge by merge, in the chat template, and beside another text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets

from llmlesson.views import tokens as view
from llmlesson.views.markup import note, title
from llmlesson.widgets.base import LessonWidget
from llmlesson.widgets.tokenizer_session import TokenizerSession

if TYPE_CHECKING:
    from llmlesson.engine import Engine

NAMES = ("Text A", "Text B")


class TokenizerExplorer(LessonWidget):
    """The tokens of a text, and how the model's merge table makes them; of a second text too, if one is given.

    Raises LessonError for a model without a tokenizer, or with one that doesn't merge pairs.
    """

    def __init__(self, engine: Engine, text: str, other: str = "") -> None:
        super().__init__()
        self._tokenizer = engine.tokenizer
        self.sessions = [TokenizerSession(self._tokenizer, text), TokenizerSession(self._tokenizer, other)]
        self.done = self._most  # merges shown
        self._in_chat = False

    @property
    def _most(self) -> int:
        return max(len(session.merges) for session in self.sessions)

    def to_html(self) -> str:
        return self._counts() + "".join(self._pictures())

    def _plain(self) -> str:
        lines = []
        for name, session in self._used():
            spelled = " ".join(view.shown(chip.raw) for chip in session.chips(len(session.merges)))
            lines.append(f"{name}: {len(session.text)} characters, {len(session.ids(self._most))} tokens: {spelled}")
        return "\n".join(lines)

    def _build(self) -> list[ipywidgets.Widget]:
        texts = [self._text_field(index) for index in range(len(NAMES))]
        buttons = [
            self._step_button("No merges", lambda: 0),
            self._step_button("Back one merge", lambda: self.done - 1),
            self._step_button("Next merge", lambda: self.done + 1).add_class("main"),
            self._step_button("All merges", lambda: self._most),
        ]
        self._chat = ipywidgets.Checkbox(
            description="in the chat template", value=self._in_chat, indent=False, layout={"width": "auto"}
        )
        self._watch(self._chat, self._set_chat)
        self._count = ipywidgets.HTML()
        self._halves = [ipywidgets.HTML(layout={"flex": "1 1 420px", "min_width": "0"}) for _ in NAMES]
        row = {"flex_flow": "row wrap", "align_items": "center"}
        return [
            ipywidgets.HBox(texts, layout=row),
            ipywidgets.HBox([*buttons, self._chat], layout=row),
            self._status,
            self._count,
            ipywidgets.HBox(self._halves, layout={**row, "align_items": "flex-start"}),
        ]

    def _show(self) -> None:
        self._count.value = self._counts()
        for half, picture in zip(self._halves, self._pictures(), strict=True):
            half.value = picture
            half.layout.display = None if picture else "none"

    def _text_field(self, index: int) -> ipywidgets.Widget:
        field = ipywidgets.Textarea(
            value=self.sessions[index].text,
            description=NAMES[index],
            placeholder="type here" if index == 0 else "another text, to compare",
            rows=3,
            style={"description_width": "initial"},
            layout={"flex": "1 1 420px", "width": "auto"},
        )
        return self._watch(field, lambda text: self._set_text(index, text))

    def _step_button(self, label: str, to: object) -> ipywidgets.Widget:
        return self._button(label, lambda: self._go(to()))  # type: ignore[operator]

    def _set_text(self, index: int, text: str) -> None:
        self.sessions[index] = TokenizerSession(self._tokenizer, text)
        self.done = self._most

    def _set_chat(self, wanted: bool) -> None:
        if wanted:
            _ = self.sessions[0].chat_chips  # raises where there is no template
        self._in_chat = wanted

    def _go(self, done: int) -> str:
        """Show so many merges; say which the last of them was."""
        self.done = min(max(done, 0), self._most)
        return " ".join(f"{name}. {session.explain(self._within(session))}" for name, session in self._used())

    def _within(self, session: TokenizerSession) -> int:
        return min(self.done, len(session.merges))

    def _used(self) -> list[tuple[str, TokenizerSession]]:
        """The texts there are, with their names; the first also when it is empty."""
        return [pair for pair in zip(NAMES, self.sessions, strict=True) if pair[1].text or pair[0] == NAMES[0]]

    def _counts(self) -> str:
        return view.counts({name: (s.text, len(s.ids(self._within(s)))) for name, s in self._used()})

    def _pictures(self) -> list[str]:
        """One for each text; empty for a second that isn't there."""
        pictures = {
            name: title(f"{name}: {session.explain(self._within(session))}")
            + view.lost(session.lost)
            + view.chips(session.chips(self._within(session)), f"Tokens of {name}")
            + self._chat_picture(name, session)
            for name, session in self._used()
        }
        return [pictures.get(name, "") for name in NAMES]

    def _chat_picture(self, name: str, session: TokenizerSession) -> str:
        if not self._in_chat:
            return ""
        special = sum(chip.special for chip in session.chat_chips)
        return (
            title(f"{name} in the chat template: {len(session.chat_chips)} tokens, of which {special} are special (◆)")
            + note("Only the template makes special tokens, never what somebody types.")
            + view.chips(session.chat_chips, f"Tokens of {name} in the chat template")
        )
