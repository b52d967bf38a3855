"""Every lesson in JupyterLab: Restart-and-Run-All without an error in a cell, in a widget or in the console."""

from pathlib import Path

import pytest

from browser.lab import Lab

pytestmark = pytest.mark.browser

LESSONS = sorted(path.name for path in (Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", LESSONS)
def test_lesson_runs_in_jupyterlab(name: str, lab: Lab):
    lab.open_notebook(name)
    lab.run_all()
    assert lab.error_outputs() == []
    # A widget is drawn after its cell has finished.
    loading = lab.outputs().filter(has_text="Loading widget")
    loading.first.wait_for(state="detached")
    shown = "\n".join(lab.outputs().all_inner_texts())
    for trouble in ("Traceback (most recent call last)", "Error displaying widget", "model not found"):
        assert trouble not in shown
    assert lab.page.locator(".jp-Dialog").count() == 0
    assert lab.console_errors == []
