"""A kernel restarted in the middle of a lesson: dead widgets say so, and Run All Above brings the lesson back."""

import json

import pytest
from playwright.sync_api import expect

from browser.conftest import NOTEBOOKS
from browser.lab import NOTEBOOK, RUN_SECONDS, Lab

pytestmark = pytest.mark.browser

LESSON = "01_tokenization.ipynb"
WIDGET = "TokenizerExplorer("
DISCONNECTED = ".jupyter-widgets-disconnected"
EXECUTE = """id => {
    window.command = 'running';
    jupyterapp.commands.execute(id).then(
        () => { window.command = 'done'; }, error => { window.command = String(error); });
}"""


def execute(lab: Lab, command: str, confirm: bool = False) -> None:
    """Runs a command of JupyterLab's menus, waits until it is done, and until the kernel is."""
    lab.page.evaluate(EXECUTE, command)
    if confirm:
        lab.page.locator(".jp-Dialog .jp-mod-accept").click()
    lab.page.wait_for_function("window.command !== 'running'", timeout=RUN_SECONDS * 1000)
    assert lab.page.evaluate("window.command") == "done"
    lab.wait_kernel_idle(RUN_SECONDS)


def select(lab: Lab, cell: int) -> None:
    lab.page.evaluate(f"index => {{ {NOTEBOOK}.content.activeCellIndex = index; }}", cell)


def test_a_restart_in_the_middle(lab: Lab):
    cells = json.loads((NOTEBOOKS / LESSON).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) if cell["cell_type"] == "code" else "" for cell in cells]
    widget = next(index for index, source in enumerate(sources) if source.startswith(WIDGET))
    middle = next(index for index, source in enumerate(sources) if index > widget and "engine." in source)

    lab.open_notebook(LESSON)
    select(lab, middle)
    execute(lab, "notebook:run-all-above")
    expect(lab.outputs(widget).get_by_role("button").first).to_be_visible()
    assert lab.page.locator(DISCONNECTED).count() == 0

    execute(lab, "kernelmenu:restart", confirm=True)
    expect(lab.outputs(widget).locator(DISCONNECTED).first).to_be_visible()
    shown = lab.outputs(widget).inner_text()
    for button in lab.outputs(widget).get_by_role("button").all():
        button.click()
    assert lab.outputs(widget).inner_text() == shown
    # What JupyterLab says of any widget whose kernel is gone.
    assert {error.split(" (")[0] for error in lab.console_errors} <= {"Cannot send"}
    lab.console_errors.clear()

    select(lab, middle)
    execute(lab, "notebook:run-cell")
    assert lab.error_outputs() == [f"cell {middle}: NameError: name 'engine' is not defined"]

    execute(lab, "notebook:run-all-above")
    select(lab, middle)
    execute(lab, "notebook:run-cell")
    assert lab.error_outputs() == []
    expect(lab.page.locator(DISCONNECTED)).to_have_count(0)

    execute(lab, "notebook:restart-run-all", confirm=True)
    assert lab.error_outputs() == []
    expect(lab.page.locator(DISCONNECTED)).to_have_count(0)
    assert lab.console_errors == []
