"""The site, built once with the stored outputs and served on the loopback."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.lab import run_browser
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("site") / "public"
    command = [sys.executable, ROOT / "tools" / "pages.py", "--stored", "--output", output]
    environment = {**os.environ, "GITHUB_REPOSITORY": "someone/course"}  # as where it is published
    built = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)
    assert built.returncode == 0, built.stderr
    return output


@pytest.fixture(scope="package")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with run_browser() as running:
        yield running
