"""Fixtures for tests in JupyterLab.

The scope is this package, not the session: while Playwright's own event loop lives, `asyncio.run` fails in every other
test, and the server's memory is better spent on the notebooks that nbval runs next.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.lab import Lab, open_lab, run_browser
from browser.server import Server, run_server

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab over a copy of notebooks/, so that no run changes the committed ones."""
    scratch = tmp_path_factory.mktemp("jupyter")
    folder = scratch / "notebooks"
    ignore = shutil.ignore_patterns(".ipynb_checkpoints")
    if NOTEBOOKS.exists():
        shutil.copytree(NOTEBOOKS, folder, ignore=ignore)
    else:
        folder.mkdir()
    with run_server(folder, scratch) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with run_browser() as running:
        yield running


@pytest.fixture
def lab(browser: Browser, server: Server) -> Iterator[Lab]:
    with open_lab(browser, server) as page:
        yield page
