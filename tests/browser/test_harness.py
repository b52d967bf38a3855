"""The harness itself: a live widget in JupyterLab, in both themes, and errors that do not go unseen."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import expect

from browser.lab import Lab
from browser.server import Server, run_server

pytestmark = pytest.mark.browser

TESTS = Path(__file__).resolve().parents[1]

COUNTER = """\
import ipywidgets

button = ipywidgets.Button(description="Count")
shown = ipywidgets.HTML("<p>clicked 0 times</p>")
clicks = 0

def count(_):
    global clicks
    clicks += 1
    shown.value = f"<p>clicked {clicks} times</p>"

button.on_click(count)
ipywidgets.VBox([button, shown])
"""


def write(server: Server, name: str, *cells: str) -> None:
    notebook = new_notebook(cells=[new_markdown_cell("# A notebook"), *(new_code_cell(cell) for cell in cells)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(notebook, server.folder / name)


def test_a_widget_renders_and_counts_clicks_in_both_themes(lab: Lab, tmp_path):
    write(lab.server, "counter.ipynb", COUNTER, "print('the last cell ran')", "\n".join(["'tall'"] + ["#"] * 100))
    lab.open_notebook("counter.ipynb")
    lab.run_all()
    expect(lab.outputs(2)).to_have_text("the last cell ran\n")
    expect(lab.outputs(1)).to_contain_text("clicked 0 times")

    button = lab.outputs(1).get_by_role("button", name="Count")
    for clicks, theme in enumerate(["dark", "light"], start=1):
        lab.set_theme(theme)
        button.click()
        expect(lab.outputs(1)).to_contain_text(f"clicked {clicks} times")
    assert lab.error_outputs() == []
    assert lab.console_errors == []

    (whole,) = lab.screenshot(tmp_path / "whole.png")
    parts = lab.screenshot(tmp_path / "part.png", part_height=800)
    assert height(whole) > 1600, "the notebook is taller than the window, and so must its picture be"
    assert [height(part) for part in parts[:-1]] == [800] * (len(parts) - 1)
    assert sum(map(height, parts)) == height(whole)


def height(png) -> int:
    return int.from_bytes(png.read_bytes()[20:24], "big")


def test_an_error_in_a_cell_is_seen_and_ends_the_run(lab: Lab):
    write(lab.server, "broken.ipynb", "1 / 0", "print('never')")
    lab.open_notebook("broken.ipynb")
    lab.run_all()
    assert lab.error_outputs() == ["cell 1: ZeroDivisionError: division by zero"]
    expect(lab.outputs(2)).to_have_count(0)


def test_an_error_in_the_page_is_seen(lab: Lab):
    write(lab.server, "script.ipynb", "from IPython.display import Javascript\nJavascript('console.error(\"seen\")')")
    lab.open_notebook("script.ipynb")
    lab.run_all()
    assert any("seen" in error for error in lab.console_errors)


def test_a_server_ends_with_its_kernels_also_when_a_test_fails(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    before = set(psutil.Process().children(recursive=True))
    started: list[psutil.Process] = []

    def failing_test() -> None:
        with run_server(folder, tmp_path) as server:
            server.request("POST", "api/kernels")
            started.extend(set(psutil.Process().children(recursive=True)) - before)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_test()
    assert len(started) >= 2, "a server and a kernel"
    assert not any(child.is_running() for child in started)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")
def test_a_server_ends_when_the_process_that_started_it_is_killed(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    code = (
        "import pathlib, time, browser.server as s\n"
        "with s.run_server(pathlib.Path('folder').resolve(), pathlib.Path.cwd()) as server:\n"
        "    server.request('POST', 'api/kernels')\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == b"up"
        started = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(started) >= 2, "a server and a kernel"
    _, alive = psutil.wait_procs(started, timeout=20)
    assert alive == []
