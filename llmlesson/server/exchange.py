"""One request to a server with OpenAI's API, streamed, and when each piece of its answer reached the client."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from llmlesson.server.sse import EventReader

CUT = "the stream ended without a finish_reason"
TEXTS = ("content", "reasoning_content", "reasoning")  # where servers put what a model writes


@dataclass
class Exchange:
    """A request as its client saw it. All times are seconds on the clock that it was made with."""

    sent: float  # before the connection was made
    arrivals: list[float] = field(default_factory=list)  # of each event that carries text
    ended: float = math.nan  # the response was read to its end
    tokens: int = 0  # as the server counts them; of one that doesn't, events with text
    text: str = ""
    error: str = ""  # why this is no whole answer; empty if it is one
    request_id: str = ""  # the response's X-Request-Id
    status: int = 0  # of the response; 0 if there was none
    replica: str = ""  # the response's X-Replica, which our balancers set

    @property
    def ttft(self) -> float:
        """Time to first token: from sending to the first text. An event with a role alone doesn't count."""
        return self.arrivals[0] - self.sent if self.arrivals else math.nan

    @property
    def gaps(self) -> list[float]:
        """Inter-token latency (ITL): between each two events with text."""
        return [after - before for before, after in pairwise(self.arrivals)]

    @property
    def tpot(self) -> float:
        """Time per output token: the mean gap, as (last − first) / (tokens − 1). NaN for an answer of one token.

        It counts tokens and ITL counts events: some tokens add no text, and a stop string holds text back.
        """
        return (self.arrivals[-1] - self.arrivals[0]) / (self.tokens - 1) if self.tokens > 1 else math.nan

    @property
    def latency(self) -> float:
        """From sending to the end of the response."""
        return self.ended - self.sent

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def exchange(client: httpx.AsyncClient, body: Mapping[str, Any], clock: Callable[[], float]) -> Exchange:
    """Send one chat completion and read its stream. Whatever goes wrong with it is its `error`.

    client: its base_url is that of the API, as "http://127.0.0.1:8000/v1/".
    """
    seen = Exchange(clock())
    wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
    try:
        async with client.stream("POST", "chat/completions", json=wanted) as response:
            seen.request_id = response.headers.get("x-request-id", "")
            seen.status, seen.replica = response.status_code, response.headers.get("x-replica", "")
            if response.status_code == 200:
                await _read(response, seen, clock)
            else:
                await response.aread()
                seen.error = refusal(response)
    except (httpx.HTTPError, ValueError) as error:
        seen.error = f"{type(error).__name__}: {error}"
    seen.ended = clock()
    seen.tokens = seen.tokens or len(seen.arrivals)
    return seen


def refusal(response: httpx.Response) -> str:
    """What a response other than 200 says: its error object's message, or the beginning of any other body."""
    try:
        says = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):  # a balancer's own page is HTML, plain text or empty
        says = " ".join(response.text.split())[:200] or response.reason_phrase
    return f"status {response.status_code}: {says}"


async def _read(response: httpx.Response, seen: Exchange, clock: Callable[[], float]) -> None:
    reader, seen.error = EventReader(), CUT
    async for piece in response.aiter_bytes():
        now = clock()
        for data in reader.feed(piece):
            if data == "[DONE]":
                continue
            body = json.loads(data)
            if error := body.get("error"):
                seen.error = error["message"] if isinstance(error, dict) and "message" in error else str(error)
                return
            seen.tokens = (body.get("usage") or {}).get("completion_tokens", seen.tokens)
            for choice in body.get("choices") or ():
                delta = choice.get("delta") or {}
                if text := "".join(delta.get(name) or "" for name in TEXTS):
                    seen.text += text
                    seen.arrivals.append(now)
                if choice.get("finish_reason"):
                    seen.error = ""
