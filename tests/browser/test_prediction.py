"""Prediction in JupyterLab: by mouse and by keyboard, before and after the reveal, in both themes."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import expect

from browser.lab import Lab

pytestmark = pytest.mark.browser

CELLS = [
    """\
from llmlesson.widgets import Prediction

which = Prediction("which", ["only one", "all <b>38</b>"], question="How many <script>are</script> read?")
which""",
    'which.reveal("all <b>38</b>", "It reads first.")',
    'size = Prediction("size", question="How large?", unit="bytes")\nsize',
    'size.reveal(46_080, "Counted.")',
]


@pytest.fixture
def predictions(lab: Lab) -> Lab:
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(notebook, lab.server.folder / "predictions.ipynb")
    lab.open_notebook("predictions.ipynb")
    lab.run_all()
    return lab


def test_run_all_needs_no_click_and_spoils_nothing(predictions: Lab):
    asked, shown = predictions.outputs(0), predictions.outputs(1)
    expect(asked).to_contain_text("How many <script>are</script> read?")
    expect(shown).to_contain_text("You made no prediction")
    expect(shown.get_by_text("It reads first.")).to_be_hidden()
    shown.get_by_text("Show what was measured").click()
    expect(shown.get_by_text("It reads first.")).to_be_visible()
    assert predictions.error_outputs() == []
    assert predictions.console_errors == []


def test_a_choice_by_mouse_unfolds_the_answer_and_is_final(predictions: Lab):
    asked, shown = predictions.outputs(0), predictions.outputs(1)
    predictions.set_theme("dark")
    asked.get_by_role("radio", name="only one").click()
    expect(asked.get_by_role("status")).to_contain_text("Noted: only one.")
    expect(shown.get_by_role("status")).to_contain_text("You predicted: only one (✗ not what was measured)")
    expect(shown.get_by_text("It reads first.")).to_be_visible()
    for theme in ("light", "dark"):
        predictions.set_theme(theme)
        expect(asked.get_by_role("radio", name="all <b>38</b>")).to_be_disabled()
    assert predictions.console_errors == []


def test_the_keyboard_alone_is_enough(predictions: Lab):
    keys = predictions.page.keyboard
    predictions.outputs(0).get_by_role("radio", name="only one").focus()
    keys.press("Tab")  # each radio button is a stop; the arrow keys are JupyterLab's own
    keys.press("Space")
    expect(predictions.outputs(1)).to_contain_text("You predicted: all <b>38</b> (✓ as measured)")

    predictions.outputs(2).get_by_role("textbox", name="bytes").focus()
    keys.type("-5")
    keys.press("Tab")
    expect(predictions.outputs(2).get_by_role("button", name="Predict")).to_be_focused()
    expect(predictions.outputs(2).get_by_role("status")).to_contain_text("'-5' is less than nothing")
    keys.press("Shift+Tab")
    keys.press("Control+A")
    keys.type("4608")
    keys.press("Enter")
    expect(predictions.outputs(3)).to_contain_text("You predicted: 4,608 bytes (10 times too small)")
    expect(predictions.outputs(2).get_by_role("textbox", name="bytes")).to_be_disabled()
    assert predictions.console_errors == []


def test_a_cell_that_runs_again_remembers(predictions: Lab):
    predictions.outputs(0).get_by_role("radio", name="only one").click()
    expect(predictions.outputs(1)).to_contain_text("You predicted: only one")
    predictions.run_all()
    expect(predictions.outputs(0).get_by_role("radio", name="only one")).to_be_checked()
    expect(predictions.outputs(1)).to_contain_text("You predicted: only one")
    assert predictions.console_errors == []
