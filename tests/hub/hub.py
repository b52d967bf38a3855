"""A JupyterHub of our own: loopback, free ports, a model that nobody may write, nothing left running."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser.server import free_port, stop, wait_until_up, write_settings

from llmlesson.files.fetch import ensure_default_model

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
    write_settings(scratch)
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
            wait_until_up(process, lambda: urllib.request.urlopen(f"{url}hub/health", timeout=10).close(), hub.log)
            yield hub
        finally:
            left = stop(process, STOP_SECONDS)
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
