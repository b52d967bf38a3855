"""A JupyterLab server of our own: loopback, free port, no settings of this machine, nothing left running."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

START_SECONDS = 120
STOP_SECONDS = 20
HERE = Path(__file__).resolve().parent

PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
SETTINGS = {
    # All cells are in the page, also those out of sight: locators and full-page pictures need them.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none", "scrollPastEnd": False},
    "@jupyterlab/apputils-extension:themes": {"theme": "JupyterLab Light", "adaptive-theme": False},
}


class Server:
    """A running JupyterLab: `url`, `token`, the served `folder` and its `log` file."""

    def __init__(self, url: str, token: str, folder: Path, log: Path) -> None:
        self.url = url
        self.token = token
        self.folder = folder
        self.log = log

    def request(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def shut_down_kernels(self) -> None:
        """Ends every kernel, so that the next notebook has the memory to itself."""
        for session in json.loads(self.request("GET", "api/sessions")):
            self.request("DELETE", f"api/sessions/{session['id']}")


@contextmanager
def run_server(folder: Path, scratch: Path) -> Iterator[Server]:
    """Serves `folder`, keeps all of Jupyter's own files under `scratch`, and ends server and kernels on leaving.

    Raises RuntimeError with the server's log when it does not come up.
    """
    folders = {
        "JUPYTER_CONFIG_DIR": write_settings(scratch),
        "JUPYTER_DATA_DIR": scratch / "data",
        "JUPYTER_RUNTIME_DIR": scratch / "runtime",
        "JUPYTERLAB_WORKSPACES_DIR": scratch / "workspaces",
        "JUPYTERLAB_SETTINGS_DIR": scratch / "settings",
        "IPYTHONDIR": scratch / "ipython",
    }
    token = secrets.token_hex(16)
    port = free_port()
    command = [
        sys.executable,
        str(HERE / "serve.py"),
        "--no-browser",
        "--allow-root",
        "--expose-app-in-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    log = scratch / "jupyterlab.log"
    server = Server(f"http://127.0.0.1:{port}/", token, folder, log)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **{name: str(path) for name, path in folders.items()}},
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_up(process, lambda: server.request("GET", "api/status"), log)
            yield server
        finally:
            stop(process)


def write_settings(scratch: Path) -> Path:
    """JupyterLab's settings for the tests, below a new folder of `scratch` that is returned."""
    config = scratch / "config"
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "page_config.json").write_text(json.dumps(PAGE_CONFIG))
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    return config


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_until_up(process: subprocess.Popen[bytes], ask: Callable[[], object], log: Path) -> None:
    """Until the server answers `ask`. Raises RuntimeError with its log where it ends before, or never does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ask()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"The server did not start:\n{log.read_text(errors='replace')[-4000:]}")


def stop(process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> list[str]:
    """Asks the server to end, which ends what it started. Kills and returns what is still there after that."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        family.append(psutil.Process(process.pid))
    _, alive = psutil.wait_procs(family, timeout=5)
    left = [f"{child.pid} {child.name()}" for child in alive]
    for child in alive:
        child.kill()
    psutil.wait_procs(alive, timeout=5)
    return left
