"""The one thread that steps the batch, and passes each token to the client that waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmlesson.server.protocol import Call


class Backend(Protocol):
    """What produces the tokens: the batch engine, or one that only waits."""

    model: str
    context: int  # tokens that a prompt and its answer may have together

    def requests(self, call: Call) -> list[Any]:
        """A request for each choice of a call, prompt by prompt. Raises LessonError or ApiError for a bad call."""

    def text(self, prompt: Any) -> str:
        """The text of a prompt of the text endpoint, to be echoed."""

    def tokenize(self, prompt: Any, chat: bool, special: bool) -> list[int]:
        """The ids of a text or of messages. Raises LessonError or ApiError for what can't be."""

    def detokenize(self, ids: list[int]) -> str:
        """The text of ids. Raises LessonError or ApiError for what can't be."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token."""

    def enqueue(self, request: Any, salt: str) -> None:
        """Put a request into the queue. Raises LessonError for one that can never run."""

    def cancel(self, request: Any) -> None:
        """End a request. Does nothing if it has ended."""

    def step(self) -> Mapping[Any, Any]:
        """One step: each request that got a token, with its Step; each that failed, with an exception."""

    def read(self) -> Collection[Any]:
        """The requests of which the last step read tokens, be it a part of a prompt."""

    def __len__(self) -> int:
        """Requests that have not ended."""

    def load(self) -> tuple[int, int, float]:
        """(running requests, waiting requests, share of the cache in use)."""

    def counts(self) -> tuple[int, int, int]:
        """So far: (tokens of prompts looked up in the cache, tokens found there, requests that lost their blocks)."""


@dataclass(eq=False)
class Job:
    """One request in progress: whom to tell about each token, and when things happened (`time.perf_counter`)."""

    request: Any
    tell: Callable[[Job, Any], None]  # with a Step, or with an exception if the engine failed
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None  # the first step that read of it began: until then it was in the queue
    tokens_at: list[float] = field(default_factory=list)


class Worker:
    """Owns a backend. Any thread may call `submit` and `cancel`; the worker's thread calls `tell`."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._jobs: dict[Any, Job] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="llmlesson-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._jobs)

    def submit(self, jobs: list[Job], salt: str) -> None:
        """Put all of these into the queue, or none of them. Raises LessonError for a request that can never run."""
        with self._changed:
            if self._stopping:
                raise RuntimeError("the worker has stopped")
            added = []
            try:
                for job in jobs:
                    self.backend.enqueue(job.request, salt)
                    added.append(job)
            except BaseException:
                for job in added:
                    self.backend.cancel(job.request)
                raise
            self._jobs.update((job.request, job) for job in jobs)
            self._changed.notify()

    def cancel(self, jobs: list[Job]) -> int:
        """Cancel these. Returns how many of them had not ended."""
        with self._changed:
            there = [job for job in jobs if self._jobs.pop(job.request, None)]
        for job in there:
            self.backend.cancel(job.request)
        return len(there)

    def stop(self, seconds: float | None = None) -> None:
        """End the thread after its current step, and cancel what still runs."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(seconds)
        self.cancel(list(self._jobs.values()))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
            began = time.perf_counter()
            try:
                steps = self.backend.step()
            except Exception as error:  # whatever it is, nobody must wait for a token that never comes
                self._fail(error)
                continue
            now = time.perf_counter()
            for request in self.backend.read():
                if (reading := self._jobs.get(request)) and reading.started is None:
                    reading.started = began
            for request, step in steps.items():
                failed = isinstance(step, Exception)
                with self._changed:
                    job = self._jobs.get(request)
                    if job and (failed or step.finish_reason):
                        del self._jobs[request]
                if job and not failed:
                    job.tokens_at.append(now)
                if job:
                    job.tell(job, step)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            jobs = list(self._jobs.values())
            self._jobs.clear()
        for job in jobs:
            self.backend.cancel(job.request)
            job.tell(job, error)
