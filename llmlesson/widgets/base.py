"""What the widgets share: they are made when first shown, do one piece of work at a time, and show every error."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import ipywidgets

from llmlesson.errors import LessonError
from llmlesson.views.text import escape
from llmlesson.widgets import interrupt
from llmlesson.widgets.frame import framed

if TYPE_CHECKING:
    from llmlesson.engine import Engine

Apply = Callable[[Any], str | None]

_engine_locks: WeakKeyDictionary[Engine, threading.RLock] = WeakKeyDictionary()
# Which widgets each cell shows, and in which of its runs: a cell that runs again replaces them.
_shown_by_cell: dict[str, tuple[str, list[LessonWidget]]] = {}


def engine_lock(engine: Engine) -> threading.RLock:
    """Hold this around each use of an engine: while one widget records, no other may run a forward pass."""
    return _engine_locks.setdefault(engine, threading.RLock())


class LessonWidget(ABC):
    """A session, its pictures, and controls. It is shown as the last line of a cell.

    A subclass makes its session in the constructor (wrong input raises there, in the cell) and gives `to_html`,
    `_plain`, `_build` and `_show`. Its controls come from `_button`, `_stop_button` and `_watch`.

    Work that a button starts runs in its own thread. Handlers run in the kernel's main thread or in another one,
    depending on the version of ipykernel, and in both cases a slow handler would keep "Stop" from being heard.
    """

    def __init__(self) -> None:
        self._ui: ipywidgets.Widget | None = None
        self._controls: list[ipywidgets.Widget] = []  # disabled while work runs
        self._problems: dict[ipywidgets.Widget, ipywidgets.HTML] = {}  # what is wrong with a field, said below it
        self._status: ipywidgets.HTML | None = None
        self._lock = threading.Lock()  # for the next three
        self._running = False
        self._thread: threading.Thread | None = None
        self._late: dict[ipywidgets.Widget, Callable[[], str | None]] = {}  # changes that came while work ran
        self._stop = threading.Event()
        # JupyterLab may have changes handled in several threads of the kernel: one at a time, so that none is lost.
        self._turn = threading.RLock()
        self._drawing: int | None = None  # the thread that runs `_show`

    @abstractmethod
    def to_html(self) -> str:
        """What the widget shows now, without controls and without a kernel."""

    @abstractmethod
    def _plain(self) -> str:
        """The same in a few words, for a terminal."""

    @abstractmethod
    def _build(self) -> list[ipywidgets.Widget]:
        """Make controls and pictures, from top to bottom. The status line is added below, unless it is among them."""

    @abstractmethod
    def _show(self) -> None:
        """Bring the pictures up to date with the session and the controls. Called after every change."""

    @property
    def ui(self) -> ipywidgets.Widget:
        """The live widget, made now if it isn't there."""
        if self._ui is None:
            self._controls, self._problems = [], {}
            self._status = ipywidgets.HTML(layout={"min_height": "28px"})
            self._say("")  # what is announced must be there before it changes
            rows = self._build()
            self._ui = framed(rows if self._status in rows else [*rows, self._status])
            self._refresh()
        return self._ui

    def close(self) -> None:
        """Stop what runs and remove the widget. The session stays, and showing it again makes a new widget."""
        self._stop.set()
        ui, self._ui = self._ui, None
        close_tree(ui)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the work that a click started has ended. Returns whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self._running

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        _replace_earlier(self)
        return {**live(self.ui), "text/html": self.to_html(), "text/plain": self._plain()}

    def _button(self, label: str, work: Callable[[], str | None], says: str = "Working …") -> ipywidgets.Button:
        """A button that starts `work` in the background; while some runs, a click does nothing.

        work: may check `_stopped`, and show its progress with `_refresh` or `_say`. The status line ends with what it
        returns, or with the LessonError that it raises. It holds `engine_lock` around each use of the engine.
        """
        button = ipywidgets.Button(description=label, layout=ipywidgets.Layout(width="auto"))
        button.on_click(lambda _: self._start(work, says, button))
        self._controls.append(button)
        return button

    def _quick(self, label: str, act: Callable[[], str | None]) -> ipywidgets.Button:
        """A button for quick actions without the engine: they are done at once and disable no control."""
        button = ipywidgets.Button(description=label, layout=ipywidgets.Layout(width="auto"))
        button.on_click(lambda _: self._changed(button, lambda _: act(), None))
        return button

    def _stop_button(self) -> ipywidgets.Button:
        """A button that is always there, and makes `_stopped` true."""
        button = ipywidgets.Button(description="Stop", layout=ipywidgets.Layout(width="auto"))
        button.on_click(lambda _: self._stop.set() if self._running else self._say("Nothing is running."))
        return button

    def _watch(self, control: ipywidgets.Widget, apply: Apply | None = None) -> ipywidgets.Widget:
        """Follow the value of a control: `apply` (quick, without the engine) takes it over, then everything is shown.

        apply: returns what to say. A change that comes while work runs is applied when that ends; changes made by
        `_show` don't count. Returns the control.
        """
        wish = apply or (lambda value: None)
        control.observe(lambda change: self._changed(control, wish, change["new"]), names="value")
        self._controls.append(control)
        return control

    def _field(self, control: ipywidgets.Widget, apply: Apply) -> ipywidgets.Widget:
        """Like `_watch`, for a control that can hold a wrong value: a message right below it says what is wrong.

        The control keeps what was typed, and the session its old value. Returns the control with room for the message.
        """
        problem = ipywidgets.HTML(layout={"display": "none"})
        self._problems[control] = problem
        return ipywidgets.VBox([self._watch(control, apply), problem]).add_class("field")

    def _refresh(self) -> None:
        """Call `_show`, and ignore the changes that it makes to controls."""
        before, self._drawing = self._drawing, threading.get_ident()
        try:
            self._show()
        finally:
            self._drawing = before

    @property
    def _stopped(self) -> bool:
        """Whether "Stop" was pressed, the kernel interrupted, or the widget closed, since the work began."""
        return self._stop.is_set()

    def _say(self, text: str) -> None:
        """Show one line, which may contain anything, where it is seen and announced."""
        if self._status is not None:
            self._status.value = f'<div role="status" aria-live="polite"><bdi>{escape(text)}</bdi></div>'

    def _start(self, work: Callable[[], str | None], says: str, clicked: ipywidgets.Widget | None = None) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
            self._stop.clear()
            interrupt.stop_on_interrupt(self._stop)
            # The clicked one stays enabled (its clicks do nothing): disabled, it would lose the keyboard's focus.
            self._disable(True, clicked)
            self._say(says)
            self._thread = threading.Thread(target=self._carry_out, args=(work,), daemon=True)
            self._thread.start()

    def _carry_out(self, work: Callable[[], str | None]) -> None:
        said = self._caught(work)
        while True:
            said = self._caught(self._refresh) or said
            with self._lock:
                late, self._late = self._late, {}
                if not late:
                    self._disable(False)
                    self._say(said)
                    self._running = False
                    interrupt.forget(self._stop)
                    return
            for change in late.values():
                said = self._caught(change) or said

    def _changed(self, control: ipywidgets.Widget, apply: Apply, value: Any) -> None:
        if self._drawing == threading.get_ident():
            return
        with self._lock:
            if self._running:
                self._late[control] = partial(self._take_over, control, apply, value)
                return
        with self._turn:
            said = self._caught(partial(self._take_over, control, apply, value))
            self._say(self._caught(self._refresh) or said)

    def _take_over(self, control: ipywidgets.Widget, apply: Apply, value: Any) -> str | None:
        problem = self._problems.get(control)
        if problem is None:
            return apply(value)
        try:
            said = apply(value)
        except LessonError as error:
            problem.value = f'<div role="alert"><bdi>✗ {escape(error)}</bdi></div>'
            problem.layout.display = None
            return None
        problem.value, problem.layout.display = "", "none"
        return said

    def _caught(self, work: Callable[[], str | None]) -> str:
        """What to say after some work: its return value, or what went wrong."""
        try:
            return work() or ""
        except LessonError as error:
            return f"✗ {error}"
        except Exception as error:  # a handler's exception would only be logged, where nobody looks
            return f"✗ Something went wrong: {type(error).__name__}: {error}"

    def _disable(self, disabled: bool, but: ipywidgets.Widget | None = None) -> None:
        for control in self._controls:
            if control is not but:
                control.disabled = disabled


def live(ui: ipywidgets.Widget) -> dict[str, Any]:
    """The part of a display that becomes the widget if there is a kernel."""
    mime = "application/vnd.jupyter.widget-view+json"
    return {mime: {"version_major": 2, "version_minor": 0, "model_id": ui.model_id}}


def close_tree(ui: ipywidgets.Widget | None) -> None:
    """Close a widget and everything in it: closing only a box would leave its children, layouts and styles behind."""
    if ui is None:
        return
    parts = [getattr(ui, name, None) for name in ("layout", "style")]
    for child in (*getattr(ui, "children", ()), *(part for part in parts if isinstance(part, ipywidgets.Widget))):
        close_tree(child)
    ui.close()


def _replace_earlier(widget: LessonWidget) -> None:
    """Close what this cell showed in an earlier run and no other cell shows: otherwise it would pile up, unseen."""
    cell, run = _running_cell()
    if not cell:
        return
    earlier_run, earlier = _shown_by_cell.get(cell, (run, []))
    if earlier_run != run:
        _shown_by_cell[cell] = (run, [])
        elsewhere = [w for _, widgets in _shown_by_cell.values() for w in widgets]
        for old in earlier:
            if old is not widget and old not in elsewhere:
                old.close()
    _, now = _shown_by_cell.setdefault(cell, (run, []))
    if widget not in now:
        now.append(widget)


def _running_cell() -> tuple[str, str]:
    """The ids of the notebook's running cell and of this run; empty if there are none."""
    with suppress(ImportError, AttributeError, KeyError, TypeError):
        from IPython.core.getipython import get_ipython

        request = get_ipython().kernel.get_parent()
        return request["metadata"]["cellId"], request["header"]["msg_id"]
    return "", ""
