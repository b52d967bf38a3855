"""Two learners on a real JupyterHub, set up by deploy/tljh/, run lesson 00 at the same time in a real browser."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.lab import VIEWPORT, Lab, run_browser
from browser.server import Server
from playwright.sync_api import Browser

from hub.hub import Hub, run_hub

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(sys.platform != "linux", reason="deploy/tljh/ is for Linux"),
    pytest.mark.skipif(
        not shutil.which("configurable-http-proxy"),
        reason="needs configurable-http-proxy on PATH (npm install configurable-http-proxy)",
    ),
]
pytest.importorskip("jupyterhub")

LESSON = "00_start_here.ipynb"
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    # Not tmp_path, which only its owner can enter.
    with tempfile.TemporaryDirectory(prefix="hub-") as scratch:
        os.chmod(scratch, 0o755)
        with run_hub(Path(scratch)) as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_browser() as running:
        yield running


def log_in(browser: Browser, hub: Hub, name: str) -> Lab:
    """A learner, in a browser of their own, fills in the form; the hub begins to start their server."""
    page = browser.new_context(viewport=VIEWPORT).new_page()
    lab = Lab(page, Server(f"{hub.url}user/{name}/", "", hub.homes / name, hub.log))
    page.goto(hub.url)
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(hub.password)
    page.get_by_role("button", name="Sign in").click()
    return lab


def restart_server(lab: Lab, hub: Hub) -> None:
    """Stops and starts the learner's server with the buttons of the hub's own page."""
    lab.page.goto(f"{hub.url}hub/home")
    lab.page.get_by_role("button", name="Stop My Server").click()
    lab.page.get_by_role("button", name="Start My Server").click(timeout=30_000)
    arrive(lab)


def arrive(lab: Lab) -> None:
    """The hub leads to the lesson by itself."""
    lab.page.wait_for_url(f"{lab.server.url}lab/tree/notebooks/{LESSON}", timeout=60_000)
    lab.wait_for_notebook(LESSON)


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, size and time of change of everything in `folder`."""
    stats = {path: path.stat() for path in (folder, *folder.rglob("*"))}
    return {str(path): (stat.st_mode, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def test_two_learners_at_once(hub: Hub, browser: Browser):
    model_before = state_of(hub.model)
    learners = {name: log_in(browser, hub, name) for name in ("ada", "grace")}

    for lab in learners.values():
        arrive(lab)
    for lab in learners.values():
        lab.start_run()
    for lab in learners.values():
        lab.finish_run()
        assert lab.error_outputs() == []
        assert lab.page.locator(".jp-Dialog").count() == 0
    assert state_of(hub.model) == model_before
    assert not list(hub.homes.rglob("*.safetensors"))  # nobody fetched a model of their own

    # Each has all lessons, in files of their own that they may change.
    for name, lab in learners.items():
        mine = hub.homes / name / "notebooks"
        assert {path.name for path in mine.iterdir() if path.is_file()} == {path.name for path in NOTEBOOKS.iterdir()}
        lab.page.evaluate("jupyterapp.commands.execute('docmanager:save')")
        saved = (mine / LESSON).read_bytes()
        assert saved != (NOTEBOOKS / LESSON).read_bytes()
    ada, grace = learners["ada"], learners["grace"]
    assert grace.page.request.get(f"{hub.url}user/ada/api/contents/notebooks").status == 403
    assert grace.page.request.get(f"{hub.url}user/grace/api/contents/notebooks").status == 200

    # The second start brings back what is missing and leaves the rest alone.
    mine = hub.homes / "ada" / "notebooks"
    saved = (mine / LESSON).read_bytes()
    (mine / "01_tokenization.ipynb").unlink()
    (mine / "02_prefill.ipynb").write_text("my own words")
    restart_server(ada, hub)
    assert (mine / LESSON).read_bytes() == saved
    assert (mine / "01_tokenization.ipynb").read_bytes() == (NOTEBOOKS / "01_tokenization.ipynb").read_bytes()
    assert (mine / "02_prefill.ipynb").read_text() == "my own words"
