"""`python run_lab.py NOTEBOOK`: JupyterLab in its folder. Prints JSON with the status of what a page asks it.

It is told nothing but its address and a token: where its own files go is up to the environment.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

START_SECONDS = 120
PORT, TOKEN = 8888, "token"  # in a network of its own every port is free


def ask(method: str, path: str, body: object = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/{path}", data, method=method)
    request.add_header("Authorization", f"token {TOKEN}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def wait_until_up(server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            ask("GET", "api/status")
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("JupyterLab did not start")


def visit(name: str) -> dict[str, int]:
    """What JupyterLab in a browser asks of its server from opening a lesson to saving it."""
    theme = {"raw": json.dumps({"theme": "JupyterLab Dark"})}
    status, notebook = ask("GET", f"api/contents/{name}")
    saved = ask("PUT", f"api/contents/{name}", json.loads(notebook)) if status == 200 else (0, b"")
    return {
        "open": status,
        "save": saved[0],
        "kernel": ask("POST", "api/kernels", {})[0],
        "settings": ask("PUT", "lab/api/settings/@jupyterlab/apputils-extension:themes", theme)[0],
        "layout": ask("PUT", "lab/api/workspaces/default", {"data": {}, "metadata": {"id": "default"}})[0],
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={PORT}", f"--IdentityProvider.token={TOKEN}"]
    server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], cwd=path.parent, stdout=sys.stderr)
    try:
        wait_until_up(server)
        print(json.dumps(visit(path.name)))
    finally:
        server.terminate()
        server.wait()
