"""Prediction: the session, the widget without a browser, and what a page without a kernel shows."""

from __future__ import annotations

import subprocess
import sys

import ipywidgets
import pytest
from ipywidgets.widgets.widget import _instances

from llmlesson.errors import LessonError
from llmlesson.widgets import Prediction, prediction

CHOICES = ["only one", "all 38"]
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def _fresh_kernel():
    yield
    for session in prediction._sessions.values():
        session.close()
    prediction._sessions.clear()


@pytest.fixture
def live_widgets():
    """live_widgets() -> how many widgets more than at the start are open."""
    before = len(_instances)
    return lambda: len(_instances) - before


def control(p):
    """The radio buttons or the text field of a live prediction."""
    found = [w for w in walk(p.ui) if isinstance(w, ipywidgets.RadioButtons | ipywidgets.Text)]
    assert len(found) == 1
    return found[0]


def walk(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def status(p):
    return next(w.value for w in walk(p.ui) if isinstance(w, ipywidgets.HTML) and 'role="status"' in w.value)


def test_a_click_is_remembered_and_announced():
    p = Prediction("one", CHOICES, question="Which?")
    control(p).index = 1
    assert p.answer == "all 38"
    assert "Noted: all 38." in status(p)


def test_a_cell_that_runs_again_has_the_answer_still():
    control(Prediction("one", CHOICES)).index = 0
    again = Prediction("one", CHOICES)
    assert again.answer == "only one"
    assert control(again).value == "only one"
    assert Prediction("two", CHOICES).answer is None


def test_other_choices_are_another_question():
    Prediction("one", CHOICES).predict("all 38")
    assert Prediction("one", ["all 39", "none"]).answer is None


def test_revealed_beside_the_answer():
    p = Prediction("one", CHOICES, question="Which?")
    p.predict("only one")
    html = p.reveal("all 38", "It reads first.").to_html()
    assert html.index("You predicted: <bdi>only one</bdi>") < html.index("Measured: <bdi>all 38</bdi>")
    assert "It reads first." in html


def test_run_all_reveals_folded_and_a_late_click_unfolds():
    p = Prediction("one", CHOICES, question="Which?")
    shown = p.reveal("all 38", "It reads first.")
    assert "<details>" in shown.ui.value
    assert "You made no prediction" in shown.ui.value
    control(p).index = 1
    assert "<details>" not in shown.ui.value
    assert "✓ as measured" in shown.ui.value
    assert "What came out is below" in status(p)


@pytest.mark.parametrize(("choices", "first", "second"), [(CHOICES, "only one", "all 38"), (None, 12, 38)])
def test_a_guess_can_be_changed_until_the_answer_is_out_and_not_after(choices, first, second):
    p = Prediction("one", choices, question="How many?", unit="" if choices else "tokens")
    p.predict(second)
    p.predict(first)
    assert not control(p).disabled
    shown = p.reveal(38 if choices is None else "all 38")
    p.predict(first)  # the same once more is no change
    with pytest.raises(LessonError, match=f"You predicted {first}.*, and the answer is out"):
        p.predict(second)
    assert p.answer == first
    buttons = [w for w in walk(p.ui) if isinstance(w, ipywidgets.Button)]
    assert all(w.disabled for w in [control(p), *buttons])
    assert "You predicted: <bdi>" + str(first) in shown.ui.value

    again = Prediction("one", choices, question="How many?", unit="" if choices else "tokens")  # its cell runs again
    assert (again.answer, control(again).disabled) == (first, True)
    again.reveal(38 if choices is None else "all 38")
    with pytest.raises(LessonError, match="the answer is out"):
        again.predict(second)


def test_who_guesses_late_has_one_guess():
    p = Prediction("one", CHOICES)
    p.reveal("all 38")
    assert not control(p).disabled
    control(p).index = 0
    assert control(p).disabled
    with pytest.raises(LessonError, match="You predicted only one"):
        p.predict("all 38")


@pytest.mark.parametrize("typed", ["-5", "-0.1", "-1e9", -5])
def test_less_than_nothing_is_refused(typed):
    p = Prediction("tokens", unit="tokens")
    p.predict(7)
    with pytest.raises(LessonError, match="less than nothing"):
        p.predict(typed)
    control(p).value = str(typed)
    assert "less than nothing" in status(p)
    assert p.answer == 7
    p.predict(0)
    assert p.answer == 0


def test_the_unit_is_in_every_place_where_the_number_is():
    p = Prediction("size", question="How large?", unit="MB")
    assert control(p).description == "MB"
    assert "Your answer is a number (MB)." in p._repr_mimebundle_()["text/html"]
    p.predict(12)
    assert "Noted: 12 MB." in status(p)
    assert "Your prediction: <bdi>12 MB</bdi>" in p.to_html()
    shown = p.reveal(46, "Counted.")
    assert "You predicted: <bdi>12 MB</bdi> (3.8 times too small)" in shown.to_html()
    assert "Measured: <bdi>46 MB</bdi>" in shown.to_html()
    assert shown._repr_mimebundle_()["text/plain"] == "Measured: 46 MB. Counted."


def test_what_was_computed_is_not_called_measured():
    p = Prediction("users", CHOICES, question="Which?")
    shown = p.reveal(CHOICES[1], "From a data sheet.", computed=True)
    assert "Show what was computed" in shown.to_html()
    assert shown._repr_mimebundle_()["text/plain"].startswith("Computed: ")
    p.predict(CHOICES[0])
    assert "✗ not what was computed" in p.to_html()
    assert "easured" not in shown.to_html() + p.to_html()


def test_without_a_unit_there_is_none():
    p = Prediction("size", question="How large?")
    assert control(p).description == "number"
    assert "Your answer is a number." in p.to_html()
    p.predict(12)
    assert "Noted: 12. " in status(p)


def test_another_unit_is_another_question():
    """12 MB is no answer to a question about GB."""
    Prediction("size", unit="MB").predict(12)
    assert Prediction("size", unit="GB").answer is None


def test_a_number_can_be_typed_in_many_ways_and_is_shown_in_one():
    p = Prediction("bytes", question="How many?", unit="bytes")
    control(p).value = "46 080"
    assert p.answer == 46_080
    assert control(p).value == "46,080"
    control(p).value = "1234567.25"
    assert p.answer == 1_234_567.25
    control(p).value = "46_080"
    assert "Measured: <bdi>46,080 bytes</bdi>" in p.reveal(46_080).to_html()


@pytest.mark.parametrize("typed", ["many", "1e999", "nan", "<script>alert(1)</script>", "9" * 5000])
def test_no_number_is_a_message_and_the_answer_stays(typed):
    p = Prediction("bytes")
    p.predict(7)
    control(p).value = typed
    assert p.answer == 7
    assert "is no number" in status(p)
    assert "<script" not in status(p)
    assert len(status(p)) < 300
    control(p).value = "8"
    assert "Noted: 8." in status(p)


def test_a_truth_that_nobody_could_choose_is_refused_before_anything_changes():
    p = Prediction("one", CHOICES)
    with pytest.raises(LessonError, match="none of the choices of 'one': only one, all 38"):
        p.reveal("all 39")
    assert p.session.truth is None
    with pytest.raises(LessonError, match="none of the choices"):
        p.predict("both")
    assert p.answer is None
    with pytest.raises(LessonError, match="is no number"):
        Prediction("bytes").reveal("many")


@pytest.mark.parametrize("arguments", [("",), ("one", []), ("one", ["a"]), ("one", ["a", "a"]), ("one", "ab")])
def test_questions_that_are_none_are_refused(arguments):
    with pytest.raises(LessonError):
        Prediction(*arguments)


def test_a_page_without_a_kernel_shows_the_question_then_the_folded_answer():
    p = Prediction("one", CHOICES, question="Which?")
    bundle = p._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    assert "all 38" in bundle["text/html"]  # as a choice, not as the answer
    assert "Measured" not in bundle["text/html"]
    assert bundle["text/plain"] == "Predict. Which?\n  - only one\n  - all 38"

    shown = p.reveal("all 38", "It reads first.")._repr_mimebundle_()
    assert set(shown) == {VIEW, "text/html", "text/plain"}
    assert "<details>" in shown["text/html"]
    assert shown["text/plain"] == "Measured: all 38. It reads first."
    assert "<details>" in p.to_html()
    assert p.to_html().index("Which?") < p.to_html().index("Measured")


def test_question_and_choices_are_text_never_markup():
    p = Prediction("<b>", ["<script>1</script>", "b"], question="<img src=x onerror=alert(1)>")
    p.predict("<script>1</script>")
    shown = p.reveal("<script>1</script>", "<i>why</i>")
    for html in (
        p.to_html(),
        shown.to_html(),
        shown.ui.value,
        status(p),
        *(getattr(w, "value", "") for w in p.ui.children),
    ):
        if html != "<script>1</script>":  # the value of the radio buttons, which they show as text
            assert not any(tag in html for tag in ("<script", "<img", "<i>"))


def test_running_a_cell_again_and_closing_leave_no_widget_behind(live_widgets):
    def run_cells():
        p = Prediction("one", CHOICES)
        p._repr_mimebundle_()
        shown = p.reveal("all 38")
        shown._repr_mimebundle_()
        return p, shown

    run_cells()
    once = live_widgets()
    assert once > 0
    for _ in range(5):
        p, shown = run_cells()
    assert live_widgets() == once
    p.close()
    shown.close()
    assert live_widgets() == 0
    p.close()
    assert "all 38" in p.to_html()


def test_no_widget_at_import_time_nor_before_it_is_shown(live_widgets):
    Prediction("one", CHOICES).reveal("all 38").to_html()
    assert live_widgets() == 0
    code = "import llmlesson.widgets, sys; from ipywidgets.widgets import widget; sys.exit(len(widget._instances))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
