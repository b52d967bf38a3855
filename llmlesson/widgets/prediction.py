"""Commit to an answer before you run the cell; see it beside the measured one afterwards."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from llmlesson.errors import LessonError
from llmlesson.views import prediction as view
from llmlesson.views.style import border
from llmlesson.views.text import escape
from llmlesson.widgets.base import close_tree, live
from llmlesson.widgets.frame import framed

Answer = view.Answer

# The answers of this notebook's kernel, by the name of the question: they outlive a cell that is run again.
_sessions: dict[str, PredictionSession] = {}


class PredictionSession:
    """One question: what was predicted, what was measured. No widget."""

    def __init__(self, name: str, choices: Sequence[str] | None, question: str, unit: str) -> None:
        self.name = name
        self.choices = None if choices is None else list(choices)
        self.question = question
        self.unit = unit
        self.answer: Answer | None = None
        self.truth: Answer | None = None
        self.how = "measured"
        self.reason = ""
        self._watchers: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}

    def predict(self, answer: Answer | str) -> None:
        """Remember an answer: one of the choices, or a number of 0 or more (a text such as "1,000" or "2e6" will do).

        Raises LessonError, with the answer of before intact, for anything else, and for another answer once it was
        revealed what came out.
        """
        answer = self._checked(answer)
        if self.answer is not None and self.truth is not None and answer != self.answer:
            guess = view.plain(self.answer, self.unit)
            raise LessonError(f"You predicted {guess}, and the answer is out: it is too late for another one.")
        self.answer = answer
        self._changed()

    @property
    def decided(self) -> bool:
        """Whether it is too late for another answer."""
        return self.answer is not None and self.truth is not None

    def reveal(self, truth: Answer, reason: str = "", computed: bool = False) -> None:
        """Say what came out. Raises LessonError for a truth that could not have been predicted."""
        self.truth, self.reason = self._checked(truth), reason
        self.how = "computed" if computed else "measured"
        self._changed()

    def watch(self, role: str, changed: Callable[[], None], close: Callable[[], None]) -> None:
        """Call `changed` after each change. There is one watcher for a role: the one before it is closed."""
        self.unwatch(role)
        self._watchers[role] = (changed, close)

    def unwatch(self, role: str) -> None:
        if role in self._watchers:
            _, close = self._watchers.pop(role)
            close()

    def close(self) -> None:
        for role in list(self._watchers):
            self.unwatch(role)

    def _changed(self) -> None:
        for changed, _ in list(self._watchers.values()):
            changed()

    def _checked(self, answer: Answer) -> Answer:
        if self.choices is not None:
            if answer not in self.choices:
                raise LessonError(f"{answer!r} is none of the choices of {self.name!r}: {', '.join(self.choices)}.")
            return answer
        return number(answer)


def number(text: str | float) -> float:
    """A number of 0 or more out of what somebody typed: all that is asked for are counts, sizes, times and ratios.

    Raises LessonError.
    """
    try:
        value = float(re.sub(r"[\s,_]", "", text) if isinstance(text, str) else text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise LessonError(f"{str(text)[:40]!r} is no number. Type one such as 12, 0.5 or 46,000.")
    if value < 0:
        raise LessonError(f"{str(text)[:40]!r} is less than nothing. Type a number of 0 or more.")
    return value


class Prediction:
    """A question with choices, or for a number if there are none; shown by being the last line of a cell.

    The answer is kept under `name` until the kernel ends. `prediction.reveal(truth, reason)` then shows the truth.
    Raises LessonError for an empty name, and for fewer than two different choices.
    """

    def __init__(self, name: str, choices: Sequence[str] | None = None, question: str = "", unit: str = "") -> None:
        if not name:
            raise LessonError("A prediction needs a name, under which its answer is remembered.")
        if choices is not None and (isinstance(choices, str) or len(set(choices)) < max(2, len(choices))):
            raise LessonError(f"The prediction {name!r} needs a list of at least two choices, all different.")
        question = question or "What will come out?"
        before = _sessions.get(name)
        self.session = PredictionSession(name, choices, question, unit)
        if before and (before.choices, before.unit) == (self.session.choices, unit):
            self.session = before
            self.session.question = question
        elif before:
            before.close()
        _sessions[name] = self.session
        self._ui: ipywidgets.Widget | None = None
        self._button: ipywidgets.Button | None = None

    @property
    def answer(self) -> Answer | None:
        """What was predicted; None so far."""
        return self.session.answer

    def predict(self, answer: Answer | str) -> None:
        """The same as a click. Raises LessonError for what is no possible answer."""
        self.session.predict(answer)

    def reveal(self, truth: Answer, reason: str = "", computed: bool = False) -> Outcome:
        """What to show once it is known: the truth beside the prediction, folded where there is none yet.

        truth: one of the choices, or a number. computed: it was worked out, for another machine say, and not measured.
        Raises LessonError for a truth that could not have been predicted.
        """
        self.session.reveal(truth, reason, computed)
        return Outcome(self.session, truth, reason)

    @property
    def ui(self) -> ipywidgets.Widget:
        """The live question."""
        if self._ui is None:
            self._ui = self._choices() if self.session.choices is not None else self._number()
            self.session.watch("question", self._show, self._close_ui)
            self._show()
        return self._ui

    def to_html(self) -> str:
        """The question without a kernel; with what was measured, folded, once it is revealed."""
        s = self.session
        asked = view.question(s.question, s.choices, s.unit, s.answer)
        if s.truth is None:
            return asked
        return asked + view.outcome(s.question, s.truth, s.reason, s.unit, s.answer, s.how)

    def close(self) -> None:
        """Take the widget away. The answer stays."""
        if self._ui is not None:
            self.session.unwatch("question")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        s = self.session
        plain = "Predict. " + s.question + "".join(f"\n  - {choice}" for choice in s.choices or [])
        static = view.question(s.question, s.choices, s.unit, s.answer)
        return {**live(self.ui), "text/html": static, "text/plain": plain}

    def _choices(self) -> ipywidgets.Widget:
        self._control = ipywidgets.RadioButtons(
            options=self.session.choices, index=None, layout=ipywidgets.Layout(width="auto", max_width="100%")
        )
        self._control.observe(self._picked, names="value")
        return self._boxed(self._control)

    def _number(self) -> ipywidgets.Widget:
        self._control = ipywidgets.Text(
            description=self.session.unit or "number",
            placeholder="your guess",
            continuous_update=False,
            style={"description_width": "initial"},
        )
        self._control.observe(self._picked, names="value")
        self._button = ipywidgets.Button(description="Predict")
        self._button.on_click(lambda _: self._picked({"new": self._control.value}))
        row = [self._control, self._button]
        return self._boxed(ipywidgets.HBox(row, layout=ipywidgets.Layout(flex_flow="row wrap")))

    def _boxed(self, control: ipywidgets.Widget) -> ipywidgets.Widget:
        question = ipywidgets.HTML(f"<strong>Predict.</strong> {escape(self.session.question)}")
        self._status = ipywidgets.HTML()
        box = framed([question, control, self._status])
        box.layout.border_left, box.layout.padding = border(*view.ASKED), "0 0 0 0.9em"
        return box

    def _picked(self, change: dict[str, Any]) -> None:
        answer = change["new"]
        if answer is None or answer == "":
            return
        try:
            self.session.predict(answer)
        except LessonError as error:
            self._say(str(error))

    def _show(self) -> None:
        s = self.session
        if s.answer is None:
            self._say("Choose one, or just read on." if s.choices else "Type one, or just read on.")
            return
        for control in (self._control, self._button):
            if control is not None:
                control.disabled = s.decided
        self._control.value = view.plain(s.answer)  # one spelling of a number; no change, no event
        after = "What came out is below." if s.decided else "You can still change it. Read on to see what comes out."
        self._say(f"Noted: {view.plain(s.answer, s.unit)}. {after}")

    def _say(self, text: str) -> None:
        self._status.value = f'<span role="status" aria-live="polite"><bdi>{escape(text)}</bdi></span>'

    def _close_ui(self) -> None:
        close_tree(self._ui)
        self._ui = None


class Outcome:
    """What `reveal` shows. It follows the prediction: made only afterwards, it unfolds the answer all the same."""

    def __init__(self, session: PredictionSession, truth: Answer, reason: str) -> None:
        self.session = session
        self.truth = truth
        self.reason = reason
        self._ui: ipywidgets.HTML | None = None

    @property
    def ui(self) -> ipywidgets.Widget:
        if self._ui is None:
            self._ui = ipywidgets.HTML()
            self.session.watch("outcome", self._show, self._close_ui)
            self._show()
        return self._ui

    def to_html(self) -> str:
        s = self.session
        return view.outcome(s.question, self.truth, self.reason, s.unit, s.answer, s.how)

    def close(self) -> None:
        if self._ui is not None:
            self.session.unwatch("outcome")

    def _show(self) -> None:
        if self._ui is not None:
            self._ui.value = f'<div role="status" aria-live="polite">{self.to_html()}</div>'

    def _close_ui(self) -> None:
        close_tree(self._ui)
        self._ui = None

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        plain = f"{self.session.how.capitalize()}: {view.plain(self.truth, self.session.unit)}. {self.reason}".rstrip()
        return {**live(self.ui), "text/html": self.to_html(), "text/plain": plain}
