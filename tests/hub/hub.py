"""A JupyterHub of our own: loopback, free ports, a model that nobody may write, nothing left running."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from browser.server import PAGE_CONFIG, SETTINGS, free_port

from llmlesson.fetch import ensure_default_model

START_SECONDS = 120
STOP_SECONDS = 60
TESTS = Path(__file__).resolve().parents[1]
FIRST_UID = 61_000  # of nobody, on the usual systems

# Another user id, with no right to write what is not its own. The second way may read everything, for an interpreter
# in a folder that only root can enter; the scratch folder has to be open to all, as Jupyter asks before it reads.
BECOME = ["setpriv", "--reuid=UID", "--regid=UID", "--clear-groups"]
BECOME_READER = [*BECOME, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
REACHES = "import os, sys, jupyterhub; sys.exit(not os.access(sys.argv[1], os.R_OK | os.X_OK))"


class Hub:
    """A running JupyterHub: `url`, the learners' `password`, their `homes`, the shared `model` folder, its `log`."""

    def __init__(self, url: str, password: str, scratch: Path) -> None:
        self.url = url
        self.password = password
        self.homes = scratch / "home"
        self.model = scratch / "model"
        self.log = scratch / "hub.log"


@contextmanager
def run_hub(scratch: Path) -> Iterator[Hub]:
    """Serves the course as deploy/tljh/ does, and ends hub, proxy, servers and kernels on leaving.

    Raises RuntimeError with the log when it does not come up, or when a process outlives it.
    """
    (scratch / "config" / "labconfig").mkdir(parents=True)
    (scratch / "config" / "labconfig" / "page_config.json").write_text(json.dumps(PAGE_CONFIG))
    (scratch / "config" / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    url, password = f"http://127.0.0.1:{free_port()}/", secrets.token_hex(8)
    hub = Hub(url, password, scratch)
    shutil.copytree(ensure_default_model(), hub.model / "models" / "smollm2-135m")
    for path in (hub.model, *hub.model.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    settings = {
        "url": url,
        "hub_port": free_port(),
        "proxy_api_url": f"http://127.0.0.1:{free_port()}",
        "password": password,
        "become": way_to_become(scratch),
        "first_uid": FIRST_UID,
    }
    (scratch / "settings.json").write_text(json.dumps(settings))
    own = {"HUB_SCRATCH": str(scratch), "LLMLESSON_HOME": str(hub.model), "PYTHONPATH": str(TESTS)}
    with hub.log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "--config", str(TESTS / "hub" / "jupyterhub_config.py")],
            cwd=scratch,
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_up(hub, process)
            yield hub
        finally:
            left = stop(process)
            for path in (hub.model, *hub.model.rglob("*")):
                path.chmod(0o755)
    if left:
        raise RuntimeError(f"Left running by the hub, ended now: {left}")


def way_to_become(scratch: Path) -> list[str]:
    """The command that runs another as the user UID, able to reach Python and `scratch`; [] where there is none."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return []
    for way in (BECOME, BECOME_READER):
        command = [part.replace("UID", str(FIRST_UID)) for part in way]
        # Through `env`: setpriv itself still has root's capabilities when it looks for the program.
        tried = subprocess.run([*command, "env", sys.executable, "-c", REACHES, scratch], capture_output=True)
        if tried.returncode == 0:
            return way
    return []


def wait_until_up(hub: Hub, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{hub.url}hub/health", timeout=10):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterHub did not start:\n{hub.log.read_text(errors='replace')[-4000:]}")


def stop(process: subprocess.Popen[bytes]) -> list[str]:
    """Asks the hub to end, which ends the servers and the proxy. Kills and returns what is still there after that."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        family.append(psutil.Process(process.pid))
    _, alive = psutil.wait_procs(family, timeout=5)
    left = [f"{child.pid} {child.name()}" for child in alive]
    for child in alive:
        child.kill()
    psutil.wait_procs(alive, timeout=5)
    return left
