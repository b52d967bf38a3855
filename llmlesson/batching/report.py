"""What a step did, and what users saw over many steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from llmlesson.batching.scheduler import Counts, Plan, Scheduler


@dataclass(frozen=True)
class StepReport:
    """One step of a batch, real or simulated. The counts of blocks and requests are those after the step."""

    plan: Plan
    seconds: float
    blocks_in_use: int  # blocks that running requests hold
    tokens_in_cache: (
        int  # tokens of running requests whose K and V are there; tokens that two of them share count twice
    )
    waiting: int  # requests without blocks
    # The Step of each request that got a token; empty in a simulation.
    steps: Mapping[Any, Any] = field(default_factory=dict)
    failed: tuple[Any, ...] = ()  # requests that ended because their scores were NaN or infinite

    @classmethod
    def of(
        cls,
        scheduler: Scheduler,
        plan: Plan,
        seconds: float,
        steps: Mapping[Any, Any] | None = None,
        failed: tuple[Any, ...] = (),
    ) -> StepReport:
        """Make a report after `settle`."""
        pool = scheduler.pool
        computed = sum(scheduler.progress(request).computed for request in scheduler.running)
        in_use = pool.num_blocks - pool.num_free
        return cls(plan, seconds, in_use, computed, len(scheduler.waiting), steps or {}, failed)

    @property
    def preempted(self) -> tuple[Any, ...]:
        """Requests that lost their blocks for this step."""
        return self.plan.preempted


@dataclass(frozen=True)
class Served:
    """One request of a trace: when it and each token of its answer came, in seconds on one clock."""

    request: Any
    arrived: float
    tokens_at: list[float]

    @property
    def first_token(self) -> float:
        """Seconds from its arrival to its first token (TTFT), including time in the queue."""
        return self.tokens_at[0] - self.arrived

    @property
    def total(self) -> float:
        """Seconds from its arrival to its last token."""
        return self.tokens_at[-1] - self.arrived

    @property
    def gaps(self) -> list[float]:
        """Seconds between consecutive tokens (inter-token latency, ITL)."""
        return [after - before for before, after in pairwise(self.tokens_at)]


@dataclass(frozen=True)
class Spread:
    """Statistics over many measurements of one quantity. NaN if there are none."""

    mean: float
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Percentiles are measured values: p99 is the smallest that at least 99 % of the values don't exceed."""
        ordered = sorted(values)
        if not ordered:
            return cls(math.nan, math.nan, math.nan, math.nan)

        def rank(share: float) -> float:
            return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

        return cls(sum(ordered) / len(ordered), rank(0.5), rank(0.99), ordered[-1])


@dataclass(frozen=True)
class Summary:
    """A trace as its users and its operator saw it, with times in seconds."""

    seconds: float  # from the first arrival to the last token
    new_tokens: int
    first_token: Spread  # TTFT, over requests
    gap: Spread  # ITL, over all gaps between tokens
    per_token: Spread  # TPOT, over requests: the mean of each one's gaps
    total: Spread  # over requests
    steps: int
    rows_used: float  # the share of `max_running` that a step had work for, mean over steps
    blocks_in_use: float  # share of all blocks, mean over time
    most_blocks_in_use: int
    slots_filled: float  # of all slots in held blocks, the share with a token in it, mean over steps
    counts: Counts

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all requests together."""
        return self.new_tokens / self.seconds

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were in the cache when the request first started."""
        return self.counts.found_tokens / max(1, self.counts.prompt_tokens)

    @property
    def found_again_rate(self) -> float:
        """The same for requests that were preempted and started again: they mostly find what they left behind."""
        return self.counts.found_again_tokens / max(1, self.counts.resumed_tokens)


def summarize(served: Sequence[Served], reports: Sequence[StepReport], scheduler: Scheduler) -> Summary:
    """Sum up a trace that was played to its end. Requests without a token (cancelled ones) are left out."""
    answered = [one for one in served if one.tokens_at]
    if not answered:
        raise ValueError("No request of this trace has a token.")
    busy = sum(report.seconds for report in reports)
    held = [report for report in reports if report.blocks_in_use]
    size = scheduler.pool.block_size
    return Summary(
        seconds=max(one.tokens_at[-1] for one in answered) - min(one.arrived for one in served),
        new_tokens=sum(len(one.tokens_at) for one in answered),
        first_token=Spread.of([one.first_token for one in answered]),
        gap=Spread.of([gap for one in answered for gap in one.gaps]),
        per_token=Spread.of([sum(one.gaps) / len(one.gaps) for one in answered if one.gaps]),
        total=Spread.of([one.total for one in answered]),
        steps=len(reports),
        rows_used=sum(len(report.plan.shares) for report in reports) / (len(reports) * scheduler.max_running),
        blocks_in_use=sum(report.blocks_in_use * report.seconds for report in reports) / busy,
        most_blocks_in_use=max(report.blocks_in_use for report in reports),
        slots_filled=sum(r.tokens_in_cache / (r.blocks_in_use * size) for r in held) / max(1, len(held)),
        counts=scheduler.counts,
    )
