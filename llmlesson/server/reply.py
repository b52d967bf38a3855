"""Bodies of responses and of streams' events, as OpenAI's API has them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmlesson.server.protocol import CHAT, TEXT, Call

FINISH = {"eos": "stop", "stop": "stop", "length": "length", "cache_full": "length"}


class Choice:
    """One of the answers in a response as it grows: what of it was not sent yet.

    echoed: text in front of the answer's. token_bytes: the bytes of a token, for its log-probability.
    """

    def __init__(self, call: Call, index: int, echoed: str, token_bytes: Callable[[int], bytes]) -> None:
        self.index = index
        self.begun = False  # something of it was sent
        self.unsent = echoed
        self.finish_reason: str | None = None
        self._call, self._token_bytes = call, token_bytes
        self._length = 0  # characters of the answer
        self._scored: list[tuple[int, dict[int, float], int]] = []  # token, log-probabilities, where its text begins

    def add(self, step: Any) -> None:
        """A token: its Step."""
        # The token that ends an answer has no text, and OpenAI's API doesn't list it.
        if self._call.logprobs is not None and step.finish_reason != "eos":
            self._scored.append((step.token_id, step.logprobs, self._length))
        self.unsent += step.text
        self._length += len(step.text)
        self.finish_reason = step.finish_reason

    def take(self) -> tuple[str, dict[str, Any] | None]:
        """The text that was not sent yet, and the log-probabilities of its tokens where they are asked for."""
        text, self.unsent = self.unsent, ""
        scored, self._scored = self._scored, []
        if self._call.logprobs is None or not (scored or not self.begun):
            return text, None
        return text, self._chat(scored) if self._call.kind == CHAT else self._lists(scored)

    def _chat(self, scored: Sequence[tuple[int, dict[int, float], int]]) -> dict[str, Any]:
        content = []
        for token, logprobs, _ in scored:
            best = list(logprobs.items())[: self._call.logprobs]
            top = [self._entry(other, logprob) for other, logprob in best]
            content.append({**self._entry(token, logprobs[token]), "top_logprobs": top})
        return {"content": content, "refusal": None}

    def _lists(self, scored: Sequence[tuple[int, dict[int, float], int]]) -> dict[str, Any]:
        return {
            "tokens": [self._name(token) for token, _, _ in scored],
            "token_logprobs": [logprobs[token] for token, logprobs, _ in scored],
            "top_logprobs": [{self._name(other): value for other, value in each.items()} for _, each, _ in scored],
            "text_offset": [begins for _, _, begins in scored],
        }

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._name(token), "logprob": logprob, "bytes": list(self._token_bytes(token))}

    def _name(self, token: int) -> str:
        """A token's text; one that is part of a character is written as its bytes, as by OpenAI's server."""
        raw = self._token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


@dataclass
class Reply:
    """The bodies of one response, which all have the same id, time and model."""

    call: Call
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    id: str = field(init=False)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self.call.kind == CHAT else 'cmpl'}-{uuid.uuid4().hex}"

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of the prompts, each counted once, and of all answers, including end-of-sequence tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }

    def whole(self, answers: Sequence[Choice]) -> dict[str, Any]:
        """The body of a response that isn't streamed."""
        choices = []
        for answer in answers:
            text, logprobs = answer.take()
            content = {"message": {"role": "assistant", "content": text}} if self.call.kind == CHAT else {"text": text}
            finish = FINISH[answer.finish_reason or ""]
            choices.append({"index": answer.index, **content, "logprobs": logprobs, "finish_reason": finish})
        return {**self._head(self.call.kind), "choices": choices, "usage": self.usage}

    def chunks(self, choice: Choice) -> Iterator[dict[str, Any]]:
        """The events of a stream that a new step of a choice makes: none, one, or two.

        The first of each choice of a chat names the role. A token that adds no text sends nothing of its own.
        """
        role = {"role": "assistant"} if not choice.begun and self.call.kind == CHAT else {}
        if role and self.call.logprobs is not None:
            # In an event of its own: OpenAI's client counts log-probabilities of a choice's first event twice.
            yield self._choice(choice, {**role, "content": ""}, "", None, None)
            role = {}
        choice.begun = True
        if choice.unsent or role:
            text, logprobs = choice.take()
            yield self._choice(choice, {**role, "content": text}, text, logprobs, None)
        if choice.finish_reason:
            _, logprobs = choice.take()  # of tokens that added no text
            yield self._choice(choice, {}, "", logprobs, FINISH[choice.finish_reason])

    def _choice(self, choice: Choice, delta: Any, text: str, logprobs: Any, finish: str | None) -> dict[str, Any]:
        content = {"delta": delta} if self.call.kind == CHAT else {"text": text}
        return self._chunk([{"index": choice.index, **content, "logprobs": logprobs, "finish_reason": finish}], None)

    def usage_chunk(self) -> dict[str, Any]:
        """The last event before the end, where the client asked for it."""
        return self._chunk([], self.usage)

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, int] | None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.call.kind == CHAT else TEXT
        body = {**self._head(kind), "choices": choices}
        return {**body, "usage": usage} if self.call.include_usage else body

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
