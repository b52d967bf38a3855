"""The base of the widgets: one piece of work at a time, every error in sight, nothing left behind."""

from __future__ import annotations

import threading

import ipywidgets
import pytest
from widgets.events import VIEW, announced, click, control

from llmlesson.errors import LessonError
from llmlesson.widgets import base
from llmlesson.widgets.base import LessonWidget, close_tree, engine_lock

SECONDS = 30


class Counter(LessonWidget):
    """Counts; its work waits at `gate`, and tells through `begun` that it is there."""

    def __init__(self):
        super().__init__()
        self.count, self.by = 0, 1
        self.gate, self.begun = threading.Event(), threading.Event()
        self.gate.set()

    def to_html(self):
        return f"<p>{self.count}</p>"

    def _plain(self):
        return str(self.count)

    def _build(self):
        self.picture = ipywidgets.HTML()
        self.choice = self._watch(ipywidgets.Dropdown(options=[1, 2, 3], description="by"), self._set)
        return [
            self._button("Add", self._add, "Adding …"),
            self._button("Run", self._run, "Running …"),
            self._button("Refuse", self._refuse),
            self._button("Break", lambda: 1 / 0),
            self._stop_button(),
            self.choice,
            self.picture,
        ]

    def _show(self):
        self.picture.value = self.to_html()
        self.choice.value = self.by

    def _set(self, by):
        if by == 3:
            raise LessonError("Not by <3>.")
        self.by = by
        return f"By {by}."

    def _add(self):
        self.begun.set()
        assert self.gate.wait(SECONDS)
        self.count += self.by
        return "Added."

    def _run(self):
        while not self._stopped:
            self.count += 1
            self._refresh()
            self.begun.set()
        return "Stopped."

    def _refuse(self):
        raise LessonError("Do <b>this</b> instead.")


@pytest.fixture
def counter():
    made = Counter()
    assert made.ui is made.ui
    yield made
    made.gate.set()
    made.close()
    made.wait(SECONDS)


def test_a_click_works_shows_and_says(counter):
    click(counter, "Add")
    assert counter.picture.value == "<p>1</p>"
    assert announced(counter) == ["Added."]


def test_clicks_while_work_runs_do_nothing(counter):
    counter.gate.clear()
    add = control(counter, "Add")
    add.click()
    assert counter.begun.wait(SECONDS)
    assert announced(counter) == ["Adding …"]
    for _ in range(5):
        add.click()
    control(counter, "Run").click()
    counter.gate.set()
    assert counter.wait(SECONDS)
    assert counter.count == 1


def test_controls_are_disabled_while_work_runs_but_for_the_clicked_one_and_stop(counter):
    counter.gate.clear()
    control(counter, "Add").click()
    assert counter.begun.wait(SECONDS)
    names = ["Add", "Run", "Refuse", "Break", "Stop", "by"]
    assert [control(counter, name).disabled for name in names] == [False, True, True, True, False, True]
    counter.gate.set()
    assert counter.wait(SECONDS)
    assert not any(control(counter, name).disabled for name in names)


def test_stop_ends_a_loop_and_says_so(counter):
    control(counter, "Run").click()
    assert counter.begun.wait(SECONDS)
    control(counter, "Stop").click()
    assert counter.wait(SECONDS)
    assert announced(counter) == ["Stopped."]
    assert counter.picture.value == f"<p>{counter.count}</p>"
    control(counter, "Stop").click()
    assert announced(counter) == ["Nothing is running."]
    before = counter.count
    click(counter, "Add")
    assert counter.count == before + 1, "stopped once is not stopped for ever"


def test_errors_are_shown_and_the_next_click_works(counter):
    click(counter, "Refuse")
    assert announced(counter) == ["✗ Do &lt;b&gt;this&lt;/b&gt; instead."]
    click(counter, "Break")
    assert announced(counter) == ["✗ Something went wrong: ZeroDivisionError: division by zero"]
    click(counter, "Add")
    assert announced(counter) == ["Added."]


def test_a_picture_that_fails_is_an_error_too(counter, monkeypatch):
    monkeypatch.setattr(counter, "_show", lambda: 1 / 0)
    click(counter, "Add")
    assert "ZeroDivisionError" in announced(counter)[0]
    counter.choice.value = 2
    assert "ZeroDivisionError" in announced(counter)[0]


def test_a_value_is_taken_over_or_refused(counter):
    counter.choice.value = 2
    assert announced(counter) == ["By 2."]
    counter.choice.value = 3
    assert announced(counter) == ["✗ Not by &lt;3&gt;."]
    assert (counter.by, counter.choice.value) == (2, 2)


def test_a_value_that_changes_while_work_runs_is_taken_over_at_its_end(counter):
    counter.gate.clear()
    control(counter, "Add").click()
    assert counter.begun.wait(SECONDS)
    counter.choice.value = 2
    assert counter.by == 1
    counter.gate.set()
    assert counter.wait(SECONDS)
    assert (counter.count, counter.by) == (1, 2)


def test_display_carries_the_widget_and_the_picture_without_a_kernel(counter):
    click(counter, "Add")
    bundle = counter._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    assert (bundle["text/html"], bundle["text/plain"]) == ("<p>1</p>", "1")


def test_closing_stops_and_leaves_nothing_and_showing_again_works(live_widgets):
    counter = Counter()
    counter.to_html()
    assert live_widgets() == 0, "no widget before it is shown"
    _ = counter.ui
    control(counter, "Run").click()
    assert counter.begun.wait(SECONDS)
    counter.close()
    assert counter.wait(SECONDS)
    assert live_widgets() == 0
    counter.close()
    click(counter, "Add")
    assert counter.picture.value == f"<p>{counter.count}</p>"
    counter.close()
    assert live_widgets() == 0


def test_a_cell_that_runs_again_replaces_what_it_showed(live_widgets, monkeypatch):
    monkeypatch.setattr(base, "_shown_by_cell", {})

    def show(widget, cell, run):
        monkeypatch.setattr(base, "_running_cell", lambda: (cell, run))
        widget._repr_mimebundle_()
        return widget

    first = show(Counter(), "cell 1", "run 1")
    once = live_widgets()
    also = show(Counter(), "cell 1", "run 1")
    assert live_widgets() == 2 * once, "two in one run stand beside each other"
    show(first, "cell 2", "run 2")
    again = show(Counter(), "cell 1", "run 3")
    assert live_widgets() == 2 * once
    assert first._ui is not None, "cell 2 shows it still"
    assert also._ui is None
    show(again, "cell 1", "run 4")
    assert live_widgets() == 2 * once, "the same one again is no other one"
    for widget in (first, again):
        widget.close()
    assert live_widgets() == 0


def test_there_is_one_lock_for_an_engine(tiny_engine):
    assert engine_lock(tiny_engine) is engine_lock(tiny_engine)
    with engine_lock(tiny_engine), engine_lock(tiny_engine):
        other = threading.Thread(target=lambda: taken.append(engine_lock(tiny_engine).acquire(blocking=False)))
        taken: list[bool] = []
        other.start()
        other.join()
    assert taken == [False]


def test_a_tree_is_closed_with_layouts_and_styles(live_widgets):
    close_tree(ipywidgets.VBox([ipywidgets.HBox([ipywidgets.Button(), ipywidgets.Text()]), ipywidgets.HTML()]))
    assert live_widgets() == 0
