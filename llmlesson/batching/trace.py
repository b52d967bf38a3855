"""Traces: requests as many users send them, played through a scheduler with a real or simulated clock."""

from __future__ import annotations

import csv
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmlesson.batching.block_pool import BlockPool
from llmlesson.batching.report import Served, StepReport, Summary, summarize
from llmlesson.batching.scheduler import Plan, Scheduler
from llmlesson.errors import LessonError

# Scheduling policies, as settings of one scheduler. Without a limit on the budget, prompts are read whole.
WHOLE_PROMPTS = 10**9
POLICIES: dict[str, dict[str, Any]] = {
    "one at a time": dict(max_running=1, token_budget=WHOLE_PROMPTS),
    "static": dict(static=True, token_budget=WHOLE_PROMPTS),
    "continuous": dict(token_budget=WHOLE_PROMPTS),
    "chunked": dict(),
}


@dataclass(frozen=True)
class Arrival:
    """A request of a trace."""

    seconds: float  # when it comes, after the trace began
    ids: tuple[int, ...]
    new_tokens: int  # length of its answer
    salt: str = ""


def random_trace(
    requests: int,
    rate: float,
    prompt_tokens: float,
    new_tokens: float,
    sigma: float = 0.8,
    longest: int = 2048,
    shared_tokens: int = 0,
    vocab_size: int = 32_000,
    seed: int = 0,
) -> list[Arrival]:
    """A trace with Poisson arrivals and lognormal lengths, like real ones. Equal seeds give equal traces.

    rate: requests per second, on average; math.inf makes all arrive at once. prompt_tokens, new_tokens: mean lengths
    (before cutting the longest). sigma: standard deviation of the logarithm of a length; 0 makes all equal. longest:
    limit for a prompt and its answer together. shared_tokens: all prompts begin with this many tokens in common.
    """
    for name, value in (("requests", requests), ("rate", rate), ("prompt_tokens", prompt_tokens)):
        if value <= 0:
            raise LessonError(f"{name} is {value}: it must be more than 0.")
    if new_tokens <= 0 or not 0 <= shared_tokens < longest - 1:
        raise LessonError("A prompt and its answer need at least one token each besides the shared ones.")
    chance = random.Random(seed)
    head = tuple(chance.choices(range(vocab_size), k=shared_tokens))

    def length(mean: float) -> int:
        return max(1, round(chance.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)))

    clock, arrivals = 0.0, []
    for _ in range(requests):
        own = min(length(prompt_tokens), longest - shared_tokens - 1)
        answer = min(length(new_tokens), longest - shared_tokens - own)
        ids = head + tuple(chance.choices(range(vocab_size), k=own))
        arrivals.append(Arrival(clock, ids, answer))
        clock += chance.expovariate(rate) if rate < math.inf else 0.0
    return arrivals


def trace_from_file(path: str | Path, vocab_size: int = 32_000, seed: int = 0) -> list[Arrival]:
    """A trace from a CSV file with the columns seconds, prompt_tokens, new_tokens. The ids are random."""
    chance = random.Random(seed)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [
                (float(row["seconds"]), int(row["prompt_tokens"]), int(row["new_tokens"]))
                for row in csv.DictReader(file)
            ]
    except OSError as error:
        raise LessonError(f"The trace {path} can't be read: {error.strerror or error}.") from None
    except (KeyError, TypeError, ValueError):
        raise LessonError(
            f"{path} is not a trace: it must be a CSV file whose first line is "
            "seconds,prompt_tokens,new_tokens, with three numbers in each line after it."
        ) from None
    if not rows or min(min(row[1:]) for row in rows) < 1 or not all(0 <= row[0] < math.inf for row in rows):
        raise LessonError(f"{path}: a trace needs at least one request, times of at least 0 and lengths of at least 1.")
    return [
        Arrival(seconds, tuple(chance.choices(range(vocab_size), k=prompt)), answer)
        for seconds, prompt, answer in sorted(rows)
    ]


@dataclass(frozen=True)
class Replay:
    """The outcome of a trace."""

    served: Sequence[Served]  # in the order of arrival
    reports: Sequence[StepReport]
    scheduler: Scheduler

    def summary(self) -> Summary:
        """TTFT, ITL, throughput and so on."""
        return summarize(self.served, self.reports, self.scheduler)


class Simulated:
    """A request whose answer has a length but no content."""

    def __init__(self, arrival: Arrival) -> None:
        self.ids = arrival.ids
        self.token_ids: list[int] = []
        self.new_tokens = arrival.new_tokens

    @property
    def finish_reason(self) -> str | None:
        return "length" if len(self.token_ids) == self.new_tokens else None


def replay(trace: Iterable[Arrival], scheduler: Scheduler, cost: Callable[[Plan], float]) -> Replay:
    """Play a trace through a scheduler on a simulated machine, of which we only know how long a step takes.

    cost: the seconds that a step takes, see step_cost.py. The clock is simulated: it jumps from step to step, and to
    the next arrival if there is no work.
    """

    def add(arrival: Arrival) -> Simulated:
        request = Simulated(arrival)
        scheduler.add(request, len(request.ids) + request.new_tokens - 1, arrival.salt)
        return request

    def step() -> StepReport:
        plan = scheduler.plan()
        seconds = cost(plan)
        for share in plan.shares:
            if share.chooses:
                share.request.token_ids.append(0)
        scheduler.settle(plan)
        return StepReport.of(scheduler, plan, seconds)

    return play(trace, scheduler, add, step)


def play(
    trace: Iterable[Arrival],
    scheduler: Scheduler,
    add: Callable[[Arrival], Any],
    step: Callable[[], StepReport],
    clock: Callable[[], float] | None = None,
) -> Replay:
    """The loop of `replay` for anything with steps: it adds each request when the clock reaches its arrival.

    add: adds a request and returns it. step: makes one step. clock: measures the seconds of a step; if not given, the
    step's own report counts. With `time.process_time` you can measure a trace on a machine that is busy otherwise.
    """
    coming = deque(sorted(trace, key=lambda arrival: arrival.seconds))
    served: dict[Any, Served] = {}
    reports: list[StepReport] = []
    now = 0.0
    while coming or len(scheduler):
        if not len(scheduler):
            now = max(now, coming[0].seconds)
        while coming and coming[0].seconds <= now:
            arrival = coming.popleft()
            request = add(arrival)
            served[request] = Served(request, arrival.seconds, [])
        before = clock() if clock else 0.0
        report = step()
        if clock:
            report = replace(report, seconds=clock() - before)
        now += report.seconds
        for share in report.plan.shares:
            if share.chooses:
                served[share.request].tokens_at.append(now)
        reports.append(report)
    return Replay(list(served.values()), reports, scheduler)


def policy(name: str, blocks: int, block_size: int = 16, max_running: int = 8, token_budget: int = 256) -> Scheduler:
    """A scheduler for one of POLICIES. The arguments apply where the policy has no setting of its own."""
    if name not in POLICIES:
        raise LessonError(f"There is no policy {name!r}: choose one of {', '.join(POLICIES)}.")
    settings = {"max_running": max_running, "token_budget": token_budget, **POLICIES[name]}
    return Scheduler(BlockPool(blocks, block_size), **settings)
