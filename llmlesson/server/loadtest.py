"""A load on any server with OpenAI's API, and what its clients saw: TTFT, ITL, TPOT, throughput, goodput.

A closed loop has a fixed number of clients, each of which sends its next request once it has its answer: it slows
down when the server does. In an open loop requests come at a rate, whatever the server does, as from many users who
don't know of each other (a Poisson process).
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio
import httpx
from anyio.from_thread import start_blocking_portal

from llmlesson.batching.report import Spread
from llmlesson.errors import LessonError, whole_number
from llmlesson.server.exchange import Exchange, exchange, refusal

LONGEST = 600.0  # seconds without a byte after which a request counts as failed; a queue is silent for long
LOOPBACK = ("127.0.0.1", "localhost", "::1")
WORDS = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "it",
    "you",
    "that",
    "he",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
)


@dataclass(frozen=True)
class Load:
    """What came of a load test. Seconds; the spreads are over the requests with a whole answer."""

    exchanges: Sequence[Exchange]  # in the order of sending
    max_ttft: float = math.inf  # the limits for goodput
    max_tpot: float = math.inf

    @property
    def answered(self) -> list[Exchange]:
        return [one for one in self.exchanges if not one.error]

    @property
    def failed(self) -> list[Exchange]:
        return [one for one in self.exchanges if one.error]

    @property
    def seconds(self) -> float:
        """From the first request sent to the last response read."""
        return max(one.ended for one in self.exchanges) - min(one.sent for one in self.exchanges)

    @property
    def ttft(self) -> Spread:
        return Spread.of([one.ttft for one in self.answered if one.arrivals])

    @property
    def itl(self) -> Spread:
        """Over all gaps of all answers: a long answer counts for more than a short one."""
        return Spread.of([gap for one in self.answered for gap in one.gaps])

    @property
    def tpot(self) -> Spread:
        """Over requests: each counts once, however long its answer is."""
        return Spread.of([one.tpot for one in self.answered if one.tokens > 1])

    @property
    def latency(self) -> Spread:
        return Spread.of([one.latency for one in self.answered])

    @property
    def requests_per_second(self) -> float:
        return len(self.answered) / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens of whole answers. Those of answers that broke off were made for nothing."""
        return sum(one.tokens for one in self.answered) / self.seconds

    @property
    def goodput(self) -> float:
        """Answers a second that kept both limits (Zhong et al., DistServe, arXiv 2401.09670)."""
        # An answer of one token has no TPOT, and keeps any limit of it.
        good = [one for one in self.answered if one.ttft <= self.max_ttft and not one.tpot > self.max_tpot]
        return len(good) / self.seconds

    def summary(self) -> dict[str, Any]:
        """All of it but the single requests, for JSON: NaN and infinity are None."""
        spreads = {name: getattr(self, name) for name in ("ttft", "itl", "tpot", "latency")}
        return {
            "requests": len(self.exchanges),
            "failed": len(self.failed),
            "seconds": self.seconds,
            "requests_per_second": self.requests_per_second,
            "tokens_per_second": self.tokens_per_second,
            "goodput": self.goodput,
            "limits": {"ttft": _or_none(self.max_ttft), "tpot": _or_none(self.max_tpot)},
            **{name: {key: _or_none(value) for key, value in asdict(one).items()} for name, one in spreads.items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {**self.summary(), "exchanges": [one.to_json() for one in self.exchanges]}

    def __str__(self) -> str:
        lines = [
            f"{len(self.exchanges)} requests in {self.seconds:.2f} s: {len(self.answered)} answered, "
            f"{len(self.failed)} failed",
            f"{self.requests_per_second:.2f} requests/s, {self.tokens_per_second:.1f} tokens/s",
        ]
        limits = (("TTFT", self.max_ttft), ("TPOT", self.max_tpot))
        if kept := [f"{name} ≤ {limit:g} s" for name, limit in limits if limit < math.inf]:
            lines.append(f"goodput {self.goodput:.2f} requests/s with {' and '.join(kept)}")
        lines.append(f"{'seconds':8}" + "".join(f"{name:>9}" for name in ("mean", "p50", "p99", "max")))
        for name in ("ttft", "itl", "tpot", "latency"):
            values = asdict(getattr(self, name)).values()
            label = name if name == "latency" else name.upper()
            lines.append(f"{label:8}" + "".join(f"{'–' if math.isnan(v) else format(v, '.4f'):>9}" for v in values))
        lines += [f"failed {count} ×: {why}" for why, count in Counter(one.error for one in self.failed).most_common(5)]
        return "\n".join(lines)


def run(
    url: str,
    requests: int = 32,
    clients: int | None = None,
    rate: float | None = None,
    max_tokens: int | Sequence[int] = 64,
    prompt_words: int = 32,
    ignore_eos: bool = False,
    model: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    max_ttft: float = math.inf,
    max_tpot: float = math.inf,
    seed: int = 0,
) -> Load:
    """Load a server, and wait for the last answer. Also from a notebook's cell; an interrupt ends all requests.

    url: of the server ("http://127.0.0.1:8000"), or of its API if that is not under /v1. clients: how many take turns
    (closed loop). rate: requests a second, on average (open loop). One of the two. max_tokens: of each answer; of
    several, each in turn. prompt_words: each prompt begins with words of its own, so that no cache of prefixes knows
    it. ignore_eos: answers of exactly max_tokens, from servers that know this field (this one, vLLM, SGLang). model:
    the first that the server names, if not given. seed: for the words and the arrivals.

    Raises LessonError if the server can't be reached, or for settings that make no sense. A request that fails raises
    nothing: see `Load.failed`.
    """
    whole_number(requests, "requests")
    whole_number(prompt_words, "prompt_words")
    if (clients is None) == (rate is None):
        raise LessonError("Say either how many clients take turns, or at what rate requests come.")
    if clients is not None:
        whole_number(clients, "clients")
    if rate is not None and not 0 < rate < math.inf:
        raise LessonError(f"rate is {rate}: it must be more than 0 requests a second.")
    lengths = [max_tokens] if isinstance(max_tokens, int) else list(max_tokens)
    for length in lengths or [0]:
        whole_number(length, "max_tokens")
    chance = random.Random(seed)
    body: dict[str, Any] = {"ignore_eos": True} if ignore_eos else {}
    bodies = [
        {
            **body,
            "messages": [{"role": "user", "content": " ".join(chance.choices(WORDS, k=prompt_words))}],
            "max_tokens": length,
            "temperature": 0,
        }
        for length in itertools.islice(itertools.cycle(lengths), requests)
    ]
    dues = itertools.accumulate((chance.expovariate(rate) for _ in range(requests - 1)), initial=0.0) if rate else None
    sent = {**(headers or {}), **({"Authorization": f"Bearer {api_key}"} if api_key else {})}

    async def play() -> list[Exchange]:
        async with _client(url, sent) as client:
            served = model or await _first_model(client, url)
            started = time.perf_counter()
            return await _play(
                client,
                [{**body, "model": served} for body in bodies],
                clients,
                list(dues) if dues else [],
                lambda: time.perf_counter() - started,
            )

    # In a thread of its own, since a notebook's has a loop already.
    with start_blocking_portal() as portal:
        exchanges = portal.call(play)
    return Load(exchanges, max_ttft, max_tpot)


async def _play(
    client: httpx.AsyncClient,
    bodies: Sequence[Mapping[str, Any]],
    clients: int | None,
    dues: Sequence[float],
    clock: Any,
) -> list[Exchange]:
    seen: list[Exchange] = []

    async def one(body: Mapping[str, Any]) -> None:
        seen.append(await exchange(client, body, clock))

    async def turns(left: Any) -> None:
        for body in left:
            await one(body)

    async with anyio.create_task_group() as group:
        if clients is not None:
            left = iter(bodies)  # shared: whoever is free takes the next
            for _ in range(clients):
                group.start_soon(turns, left)
        for body, due in zip(bodies, dues, strict=False):
            await anyio.sleep(max(0.0, due - clock()))
            group.start_soon(one, body)
    return sorted(seen, key=lambda exchange: exchange.sent)


def _client(url: str, headers: Mapping[str, str]) -> httpx.AsyncClient:
    try:
        base = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise LessonError(f"{url!r} is no address. Give one like http://127.0.0.1:8000.") from None
    if base.scheme not in ("http", "https") or not base.host:
        raise LessonError(f"{url!r} is no address. Give one like http://127.0.0.1:8000.")
    if base.path == "/":
        base = base.copy_with(path="/v1")
    return httpx.AsyncClient(
        base_url=base,
        headers=headers,
        timeout=LONGEST,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=base.host not in LOOPBACK,  # a proxy in the environment has no way to this machine
    )


async def _first_model(client: httpx.AsyncClient, url: str) -> str:
    try:
        response = await client.get("models", timeout=30)
    except httpx.HTTPError as error:
        raise LessonError(
            f"No server answers at {url} ({type(error).__name__}). Start one (`llmlesson serve`), or mend the address."
        ) from None
    if response.status_code != 200:
        raise LessonError(f"{url} does not say which models it has ({refusal(response)}). Name one with --model.")
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise LessonError(f"{url} does not say which models it has. Name one with --model.") from None


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
