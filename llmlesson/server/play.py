"""Some requests to one address, each at its time, and what their clients saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
import httpx
from anyio.from_thread import start_blocking_portal

from llmlesson.server.exchange import Exchange, exchange

LONGEST = 120.0  # seconds without a byte


@dataclass(frozen=True)
class Ask:
    """One request: when it is sent, in seconds from the start, and how many tokens its answer has."""

    at: float = 0.0
    tokens: int = 16
    prompt: str = "Tell me a story about a dragon."


def play(url: str, asks: Sequence[Ask], meanwhile: Sequence[tuple[float, Callable[[], object]]] = ()) -> list[Exchange]:
    """Send them all to the server at `url`, wait until every answer has ended, and say what came, in their order.

    meanwhile: what else to do, and when, in seconds from the start: (0.5, replica.kill). Greedy, and no answer ends
    before its tokens are there. What goes wrong with a request is its `error`, and raises nothing.
    """

    async def all_of_them() -> list[Exchange]:
        seen: dict[int, Exchange] = {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(
            base_url=f"{url}/v1/", timeout=LONGEST, limits=limits, trust_env=False, verify=False
        ) as client:
            start = time.perf_counter()

            def clock() -> float:
                return time.perf_counter() - start

            async def one(index: int, ask: Ask) -> None:
                await anyio.sleep(max(0.0, ask.at - clock()))
                message = {"role": "user", "content": ask.prompt}
                body = {"messages": [message], "max_tokens": ask.tokens, "temperature": 0, "ignore_eos": True}
                seen[index] = await exchange(client, body, clock)

            async def other(at: float, do: Callable[[], object]) -> None:
                await anyio.sleep(max(0.0, at - clock()))
                await anyio.to_thread.run_sync(do)

            async with anyio.create_task_group() as group:
                for index, ask in enumerate(asks):
                    group.start_soon(one, index, ask)
                for at, do in meanwhile:
                    group.start_soon(other, at, do)
        return [seen[index] for index in range(len(asks))]

    # In a thread of its own, since a notebook's has a loop already.
    with start_blocking_portal() as portal:
        return portal.call(all_of_them)
