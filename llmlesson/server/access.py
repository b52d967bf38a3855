"""What stands before the handlers: an id for each request, when things happened to it, and which hosts are answered."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from llmlesson.errors import LessonError
from llmlesson.server.protocol import ApiError
from llmlesson.server.worker import Job

KEPT = 1000  # requests that the log holds in memory
QUIET = ("/health", "/metrics")  # a balancer asks for the first twice a second


@dataclass
class Access:
    """One request over HTTP. Times are of `time.perf_counter`."""

    id: str
    method: str
    path: str
    arrived: float = field(default_factory=time.perf_counter)
    time: float = field(default_factory=time.time)  # of its arrival, seconds since 1970
    status: int = 0
    sent: list[float] = field(default_factory=list)  # when the first and the last bytes of the body were sent
    jobs: Sequence[Job] = ()

    def to_json(self) -> dict[str, Any]:
        """For JSON. Times are seconds after its arrival."""

        def after(seconds: float | None) -> float | None:
            return None if seconds is None else round(seconds - self.arrived, 6)

        return {
            "id": self.id,
            "time": self.time,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": after(time.perf_counter()),
            "sent": [after(self.sent[0]), after(self.sent[-1])] if self.sent else [],
            "choices": [
                {
                    "prompt_tokens": len(job.request.ids),
                    "finish_reason": job.request.finish_reason,
                    "queued": after(job.arrived),
                    "started": after(job.started),
                    "tokens": [after(at) for at in job.tokens_at],
                }
                for job in self.jobs
            ],
        }


class AccessLog:
    """Gives each request an id, or keeps the one that it came with, sends it back, and notes what happened.

    The client's or a balancer's `X-Request-Id` is kept, so that one id leads through all their logs. file: a line of
    JSON is added to it for each request. Raises LessonError if it can't be opened.
    """

    def __init__(self, app: Any, file: str | Path | None = None) -> None:
        self._app = app
        self.entries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        try:
            self._file = None if file is None else open(file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise LessonError(f"The access log {file} can't be written: {error.strerror or error}.") from None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")[:200]
        # Only what is safe in a header and in a log.
        given = given if given.isascii() and given.isprintable() else ""
        access = scope["access"] = Access(given or uuid.uuid4().hex, scope["method"], scope["path"])

        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                access.status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-request-id", access.id.encode())]}
            await send(message)
            if message.get("body"):
                access.sent = [*access.sent[:1], time.perf_counter()]

        try:
            await self._app(scope, receive, noting)
        finally:
            if access.path not in QUIET:
                self._note(access)

    def _note(self, access: Access) -> None:
        entry = access.to_json()
        self.entries.append(entry)
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk must not end the answers
                self._file.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Gate:
    """Refuses unknown host names. Any web page could point its own name at this server otherwise (DNS rebinding)."""

    def __init__(self, app: Any, allowed_hosts: tuple[str, ...]) -> None:
        self._app, self._hosts = app, allowed_hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if name not in self._hosts:
                message = f"This server does not answer to the host {name!r}. Allow it with --allowed-host."
                response = JSONResponse(ApiError(403, message).body, 403)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
