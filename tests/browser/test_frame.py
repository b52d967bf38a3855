"""What all widgets share in JupyterLab: keys stay inside, an interrupt is heard, a widget without a kernel says so."""

import re

import pytest
from playwright.sync_api import expect

from browser.lab import NOTEBOOK, Lab
from browser.test_widgets_b import open_widget

pytestmark = pytest.mark.browser

CELLS = f"{NOTEBOOK}.content.widgets.map(cell => cell.model.type + ':' + cell.model.sharedModel.source)"
ACTIVE = f"{NOTEBOOK}.content.activeCellIndex"
# Shortcuts of a notebook in command mode: to text, to code, a new cell above and below, cut, merge, run, delete, move.
KEYS = ("m", "y", "r", "a", "b", "x", "Shift+M", "j", "k", "1", "d", "d", "i", "i", "0", "0", "ArrowDown", "ArrowUp")


def test_keys_typed_in_a_widget_stay_in_it(lab: Lab):
    code = 'from llmlesson.widgets import GQAExplorer\nGQAExplorer("smollm2-135m")'
    shown, _ = open_widget(lab, "keys", "before = 1", code)
    lab.page.evaluate(f"{NOTEBOOK}.content.mode = 'command'")
    before = lab.page.evaluate(CELLS), lab.page.evaluate(ACTIVE)
    controls = shown.locator("button, select, input, summary, [tabindex='0']")
    assert controls.count() >= 4
    for index in range(controls.count()):
        if controls.nth(index).is_visible():
            controls.nth(index).focus()
            for key in KEYS:
                lab.page.keyboard.press(key)
            assert (lab.page.evaluate(CELLS), lab.page.evaluate(ACTIVE)) == before
    assert shown.locator("svg").first.is_visible()
    # A closed list follows the arrow keys.
    heads = shown.get_by_label("number of KV heads")
    heads.select_option("3 (GQA, its own)")
    heads.press("ArrowDown")
    expect(shown.get_by_role("status").first).to_contain_text("9 KV heads")
    assert lab.console_errors == []


def test_the_same_keys_do_reach_the_notebook_outside_of_a_widget(lab: Lab):
    open_widget(lab, "keys", "before = 1", 'from llmlesson.widgets import GQAExplorer\nGQAExplorer("smollm2-135m")')
    lab.page.evaluate(f"{NOTEBOOK}.content.activeCellIndex = 0")
    lab.cell(0).locator(".jp-InputPrompt").click()
    lab.page.keyboard.press("m")
    lab.page.wait_for_function(f"{CELLS}[0].startsWith('markdown')")


def test_interrupting_the_kernel_stops_a_run_and_a_restart_is_said(lab: Lab):
    load = "import llmlesson\nfrom llmlesson.widgets import DecodeStepper\nengine = llmlesson.load(device='cpu')"
    shown, _ = open_widget(lab, "interrupt", load, 'DecodeStepper(engine, "Tell me a long story.")')
    shown.get_by_role("button", name="Run", exact=True).click()
    expect(shown.get_by_role("status").last).to_contain_text("Running")
    expect(shown).to_contain_text(re.compile(r"Decode step \d+"))
    lab.page.evaluate("() => { jupyterapp.commands.execute('kernelmenu:interrupt'); }")
    expect(shown.get_by_role("status").last).to_contain_text("Stopped.")
    expect(shown.get_by_role("button", name="Step")).to_be_enabled()

    lab.page.evaluate("() => { jupyterapp.commands.execute('kernelmenu:restart'); }")
    lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    frame = shown.locator(".llmlesson.jupyter-widgets-disconnected")
    expect(frame).to_be_visible()
    said = frame.evaluate("e => getComputedStyle(e, '::before').content")
    assert "Run its cell again" in said
    lab.wait_kernel_idle()  # a kernel on its way can't be shut down
