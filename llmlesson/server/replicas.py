"""Several paced servers, each in its own process, which you can drain and kill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from llmlesson.errors import LessonError
from llmlesson.server.child import Child


class Replica:
    """A paced server (see `paced`) in its own process of about 30 MB, on a free port of the loopback address.

    token_seconds: of each step. prompt_seconds: of each word of a prompt. slots: requests that share a step.
    """

    def __init__(self, token_seconds: float = 0.05, prompt_seconds: float = 0.0, slots: int = 8) -> None:
        settings = {"--token-seconds": token_seconds, "--prompt-seconds": prompt_seconds, "--slots": slots}
        arguments = [text for pair in settings.items() for text in map(str, pair)]
        self._child = Child(["-m", "llmlesson.server.replica", *arguments], stdout=subprocess.PIPE)
        self._url = ""

    @property
    def url(self) -> str:
        """Its address. Waits until it listens; raises LessonError if it ended before that."""
        if not self._url:
            assert self._child.process.stdout is not None
            self._url = self._child.process.stdout.readline().strip()
        if not self._url:
            raise LessonError("A replica ended before it listened. Try again; `llmlesson doctor` may tell you why.")
        return self._url

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def pid(self) -> int:
        return self._child.process.pid

    def drain(self) -> None:
        """Refuse new requests and report 503 at `/health`, while running requests go on."""
        self._child.tell("drain")

    def kill(self) -> None:
        """End the process at once, in the middle of whatever it is doing."""
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Replica({self._url or 'starting'}{'' if self.alive else ', ended'})"


class Replicas:
    """Several replicas, started together, and ended together however the `with` block ends.

    with Replicas(2) as replicas:
        replicas.urls
        replicas[0].kill()
    """

    def __init__(self, count: int, token_seconds: float = 0.05, prompt_seconds: float = 0.0, slots: int = 8) -> None:
        self._replicas = [Replica(token_seconds, prompt_seconds, slots) for _ in range(count)]

    @property
    def urls(self) -> list[str]:
        return [replica.url for replica in self._replicas]

    def stop(self) -> None:
        for replica in self._replicas:
            replica.stop()

    def __getitem__(self, index: int) -> Replica:
        return self._replicas[index]

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas)

    def __len__(self) -> int:
        return len(self._replicas)

    def __enter__(self) -> Replicas:
        try:
            _ = self.urls  # all of them listen
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
