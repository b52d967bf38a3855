"""A server on this machine in the place of the Hugging Face hub: as much of its interface as a download asks for."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

SHA = "a" * 40


class FakeHub:
    """Serves the files of `folder` as the model "org/name"."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.refuses: tuple[int, str] | None = None  # a status and the hub's name for the error
        self.refuses_files = False  # only the files, as for a gated model whose page everybody may see
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                hub.answer(self, body=True)

            def do_HEAD(self) -> None:
                hub.asked.append(self.path)
                hub.answer(self, body=False)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        path = urlsplit(request.path).path
        is_file = path.startswith((f"/org/name/resolve/{SHA}/", "/org/name/resolve/main/"))
        if self.refuses and (is_file or not self.refuses_files):
            status, code = self.refuses
            self.send(request, status, b"{}", {"X-Error-Code": code} if code else {}, body)
        elif path in ("/api/models/org/name", "/api/models/org/name/revision/main"):
            self.send(request, 200, json.dumps({"id": "org/name", "sha": SHA, "siblings": []}).encode(), {}, body)
        elif path == f"/api/models/org/name/tree/{SHA}":
            files = [
                {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": self.etag(file)}
                for file in sorted(self.folder.iterdir())
            ]
            self.send(request, 200, json.dumps(files).encode(), {}, body)
        elif is_file and (file := self.folder / path.split("/", 5)[-1]).is_file():
            head = {"ETag": f'"{self.etag(file)}"', "X-Repo-Commit": SHA}
            self.send(request, 200, file.read_bytes(), head, body)
        elif is_file:
            self.send(request, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": SHA}, body)
        else:
            self.send(request, 404, b"", {"X-Error-Code": "RepoNotFound"}, body)

    def etag(self, file: Path) -> str:
        return hashlib.sha1(file.read_bytes()).hexdigest()

    def send(self, request: BaseHTTPRequestHandler, status: int, content: bytes, head: dict[str, str], body: bool):
        request.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **head}.items():
            request.send_header(name, value)
        request.end_headers()
        if body:
            request.wfile.write(content)
