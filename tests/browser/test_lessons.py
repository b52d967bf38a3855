"""Every lesson in JupyterLab: no answer is seen on opening; Restart-and-Run-All shows everything, without an error."""

import json
from pathlib import Path

import pytest

from browser.lab import Lab

pytestmark = pytest.mark.browser

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def answers(name: str) -> set[str]:
    """Lines that answer a question: what is printed after the first one, the sources of reveals, the texts behind them.

    Without what the source that prints it says already, and without what is too short to say anything.
    """
    asked = revealed = False
    found, code = [], ""
    for cell in json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            found += source.splitlines()[1:] * revealed
            revealed = False
        elif "Prediction(" in source and ".reveal(" not in source:
            asked = True
        elif asked and "lessons." not in source and ".check(" not in source:
            reveals = ".reveal(" in source
            revealed = revealed or reveals
            found += source.splitlines()[1:] * reveals
            code += spelled(source) * (not reveals)
            for output in cell["outputs"]:
                found += "".join(output.get("text") or output["data"].get("text/plain", "")).splitlines()
    return {line for line in map(spelled, found) if len(line) > 15 and line not in code}


def spelled(text: str) -> str:
    return " ".join(text.replace("*", "").replace("`", "").split())


@pytest.mark.parametrize("name", LESSONS)
def test_lesson_runs_in_jupyterlab(name: str, lab: Lab):
    lab.open_notebook(name)
    panel = lab.page.locator(".jp-NotebookPanel")
    hidden, shown = answers(name), spelled(panel.inner_text())
    assert len(hidden) > 25  # in each lesson
    assert [line for line in hidden if line in shown] == []
    lab.run_all()
    assert panel.locator(".jp-OutputPlaceholder").count() == 0
    assert panel.locator(".jp-MarkdownCell .jp-InputPlaceholder").count() == 0
    assert lab.error_outputs() == []
    # A widget is drawn after its cell has finished.
    loading = lab.outputs().filter(has_text="Loading widget")
    loading.first.wait_for(state="detached")
    shown = "\n".join(lab.outputs().all_inner_texts())
    for trouble in ("Traceback (most recent call last)", "Error displaying widget", "model not found"):
        assert trouble not in shown
    assert lab.page.locator(".jp-Dialog").count() == 0
    assert lab.console_errors == []
