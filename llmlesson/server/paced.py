"""A backend that only waits instead of running a model: for experiments with balancers, without torch.

It "reads" prompts at a fixed pace, and its answers repeat the words of one sentence, one word per token. The server,
the sockets and the process, which you can kill, are real. It takes about 30 MB.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmlesson.server.protocol import CHAT, ApiError, Call

SENTENCE = "This server keeps time: each word takes as long as a token of a model would, and says nothing."
WORDS = SENTENCE.split()


@dataclass(frozen=True)
class PacedStep:
    text: str
    finish_reason: str | None


@dataclass(eq=False)
class PacedRequest:
    """A prompt with as many ids as words, and its answer so far."""

    ids: list[int]
    max_new_tokens: int
    words: Any = field(default_factory=lambda: itertools.cycle(WORDS))
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None


class PacedBackend:
    """token_seconds: of each step. prompt_seconds: of each token of a prompt. slots: requests that share a step."""

    model = "paced"
    context = 4096

    def __init__(self, token_seconds: float = 0.05, prompt_seconds: float = 0.0, slots: int = 8) -> None:
        self._token_seconds, self._prompt_seconds, self._slots = token_seconds, prompt_seconds, slots
        self._queue: list[PacedRequest] = []  # the first `slots` of them run
        self._read: list[PacedRequest] = []  # by the last step

    def requests(self, call: Call) -> list[PacedRequest]:
        if call.logprobs is not None:
            raise ApiError(400, "A server that keeps time has no log-probabilities.", param="logprobs")
        made = []
        for prompt in call.prompts:
            words = len(self.tokenize(prompt, call.kind == CHAT, True)) or 1
            most = call.max_tokens or 64
            if words + most > self.context:
                raise ApiError(
                    400,
                    f"This server's context is {self.context:,} tokens.",
                    param="messages",
                    code="context_length_exceeded",
                )
            made += [PacedRequest(list(range(words)), most) for _ in range(call.n)]
        return made

    def text(self, prompt: str | list[int]) -> str:
        return str(prompt)

    def tokenize(self, prompt: Any, chat: bool, special: bool) -> list[int]:
        """A word is a token, and all words are the same one."""
        if chat and not all(isinstance(message, dict) for message in prompt):
            raise ApiError(400, "'messages' must be a list of objects.", param="messages")
        text = " ".join(str(message.get("content")) for message in prompt) if chat else str(prompt)
        return [0] * len(text.split())

    def detokenize(self, ids: list[int]) -> str:
        raise ApiError(400, "A server that keeps time has no vocabulary.", param="tokens")

    def token_bytes(self, token: int) -> bytes:
        return b""

    def enqueue(self, request: PacedRequest, salt: str) -> None:
        self._queue.append(request)

    def cancel(self, request: PacedRequest) -> None:
        request.finish_reason = request.finish_reason or "cancelled"
        if request in self._queue:
            self._queue.remove(request)

    def step(self) -> Mapping[Any, Any]:
        self._read = running = self._queue[: self._slots]
        new = sum(len(request.ids) for request in running if not request.token_ids)
        time.sleep(self._token_seconds + new * self._prompt_seconds)
        steps = {}
        for request in running:
            if request.finish_reason:
                continue
            word = next(request.words)
            request.token_ids.append(0)
            if len(request.token_ids) == request.max_new_tokens:
                request.finish_reason = "length"
                self._queue.remove(request)
            steps[request] = PacedStep(word if len(request.token_ids) == 1 else f" {word}", request.finish_reason)
        return steps

    def read(self) -> Collection[PacedRequest]:
        return self._read

    def __len__(self) -> int:
        return len(self._queue)

    def load(self) -> tuple[int, int, float]:
        running = min(len(self._queue), self._slots)
        return running, len(self._queue) - running, running / self._slots

    def counts(self) -> tuple[int, int, int]:
        return 0, 0, 0  # it has no cache
