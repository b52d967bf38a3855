"""A server in a thread, which a notebook or a terminal starts, drains and stops."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from llmlesson.errors import LessonError
from llmlesson.server.access import AccessLog, Gate
from llmlesson.server.app import Service
from llmlesson.server.worker import Backend, Worker

if TYPE_CHECKING:
    from llmlesson.batching.batch_engine import BatchEngine
    from llmlesson.engine import Engine

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
GRACE = 2.0  # seconds that open streams get to send their last event


class Server:
    """An OpenAI-compatible server on this machine's loopback address.

    engine: an Engine (it gets a batch engine), a BatchEngine, or another backend. port: 0 takes a free one. queue: the
    most requests at once, running and waiting; more are refused with 429. api_key: what clients must send, if given.
    allowed_hosts: host names that it accepts besides loopback ones, for instance behind a balancer.
    access_log: a file that gets a line of JSON for each request; see `log`.

        server = Server(engine).start()
        server.url              # "http://127.0.0.1:PORT"; clients of OpenAI take url + "/v1"
        server.stop()
    """

    def __init__(
        self,
        engine: Engine | BatchEngine | Backend,
        port: int = 0,
        queue: int = 256,
        api_key: str | None = None,
        allowed_hosts: tuple[str, ...] = (),
        access_log: str | Path | None = None,
    ) -> None:
        self._worker = Worker(_backend(engine))
        self._service = Service(self._worker, queue, api_key)
        self._app = AccessLog(Gate(self._service.app(), (*LOOPBACK, *allowed_hosts)), access_log)
        self._port = port
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Its address, once it has started."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> list[dict[str, Any]]:
        """The last 1,000 requests that have ended: id, status, and the times of queue, prefill, decode and stream.

        `views.journey` draws one of them. Those to /health and /metrics are left out.
        """
        return list(self._app.entries)

    def start(self) -> Server:
        """Listen in a thread of its own. Raises LessonError if the port is taken."""
        if self._thread is not None:
            raise LessonError("This server has been started before. Make a new one.")
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind(("127.0.0.1", self._port))
        except OSError as error:
            listener.close()
            raise LessonError(
                f"Port {self._port} can't be used ({error.strerror or error}). Choose another, or 0 for a free one."
            ) from None
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=int(GRACE)
        )
        self._uvicorn = uvicorn.Server(config)
        self._worker.start()
        self._thread = threading.Thread(
            target=self._uvicorn.run, kwargs={"sockets": [listener]}, name="llmlesson-server", daemon=True
        )
        self._thread.start()
        while not self._uvicorn.started and self._thread.is_alive():
            time.sleep(0.005)
        return self

    def drain(self, seconds: float = 30.0) -> bool:
        """Refuse new requests (`/health` says 503) and wait for running ones. Returns whether all ended in time."""
        self._service.draining = True
        until = time.monotonic() + seconds
        while len(self._worker) and time.monotonic() < until:
            time.sleep(0.02)
        return not len(self._worker)

    def stop(self) -> None:
        """End open streams with an error event, then stop the server. Does nothing if it has stopped."""
        if self._thread is None or self._uvicorn is None:
            return
        self._service.draining = True
        self._service.end_streams()
        self._uvicorn.should_exit = True
        self._thread.join(GRACE + 5)
        self._worker.stop(GRACE + 5)
        self._app.close()
        self._uvicorn = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = self.url if self._uvicorn is not None else "not running"
        return f"Server({self._worker.backend.model}, {state})"


def _backend(engine: Any) -> Backend:
    if hasattr(engine, "requests") and hasattr(engine, "step"):
        backend: Backend = engine
        return backend
    from llmlesson.batching.batch_engine import BatchEngine
    from llmlesson.server.batch_backend import BatchBackend

    return BatchBackend(engine if isinstance(engine, BatchEngine) else BatchEngine(engine))
