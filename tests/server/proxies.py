"""Load balancers as processes, with the configurations of deploy/serving on free ports."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

SERVING = Path(__file__).resolve().parents[2] / "deploy" / "serving"
FILES = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf", "caddy": "Caddyfile"}
COMMANDS = {
    "haproxy": ["-db", "-f", "haproxy.cfg"],
    "nginx": ["-p", ".", "-c", "nginx.conf", "-g", "daemon off;"],
    "caddy": ["run", "--config", "Caddyfile", "--adapter", "caddyfile"],
}


def program(name):
    """Debian puts haproxy and nginx where only root's PATH leads."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """A balancer in front of two servers. change: (old, new) texts, each of which has to be in the configuration."""

    def __init__(self, name, urls, change=()):
        self.folder = tempfile.mkdtemp()
        Path(self.folder).chmod(0o755)  # nginx, started by root, works as another user
        port, metrics = free_port(), free_port()
        text = (SERVING / FILES[name]).read_text(encoding="utf-8")
        addresses = [urlsplit(url).netloc for url in urls]
        replaced = [
            ("127.0.0.1:8000", f"127.0.0.1:{port}"),
            ("127.0.0.1:8001", addresses[0]),
            ("127.0.0.1:8002", addresses[1]),
        ]
        if name == "haproxy":
            replaced.append(("127.0.0.1:8404", f"127.0.0.1:{metrics}"))
        for old, new in [*replaced, *change]:
            assert old in text, old
            text = text.replace(old, new)
        Path(self.folder, FILES[name]).write_text(text, encoding="utf-8")
        self.url, self.metrics_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics}"
        self.log = Path(self.folder, "log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program(name), *COMMANDS[name]], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + 30
        while not listens(port):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def stop(self):
        self.process.terminate()  # nginx takes its worker processes along
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
