"""A trace of requests, played on a real engine with each policy, as users and the operator see it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from llmlesson.batching.batch_engine import BatchEngine
from llmlesson.batching.report import Spread, Summary
from llmlesson.batching.trace import POLICIES, Arrival, Replay, play
from llmlesson.benchmark.report import markdown_table

if TYPE_CHECKING:
    from llmlesson.engine import Engine

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def run_trace(
    engine: Engine,
    trace: Sequence[Arrival],
    policy: str,
    blocks: int | None = None,
    block_size: int = 16,
    max_running: int = 8,
    token_budget: int = 256,
    clock: str = "wall",
) -> Replay:
    """Play a trace with one of `trace.POLICIES`. Answers are as long as the trace says, whatever the model says.

    clock: "wall", or "cpu" for the CPU time of this process, which other work on the machine doesn't disturb. If there
    is no work, the clock jumps to the next arrival.
    """
    endless = copy.copy(engine)
    endless.eos_token_ids = frozenset()
    settings: dict[str, Any] = {"max_running": max_running, "token_budget": token_budget, **POLICIES[policy]}
    batch = BatchEngine(endless, blocks, block_size, **settings)
    batch.generate([[1]], max_new_tokens=2)  # so that what libraries set up at first use delays nobody's first token
    batch.pool.forget()
    batch.scheduler.counts.prompt_tokens = 0

    def add(arrival: Arrival) -> object:
        return batch.add(list(arrival.ids), arrival.new_tokens, salt=arrival.salt)

    return play(trace, batch.scheduler, add, batch.step, CLOCKS[clock])


def to_markdown(summaries: dict[str, Summary], clock: str) -> str:
    """A table with a row for each policy."""
    heads = ["contender", "total s", "tokens/s", "TTFT s: mean", "p50", "p99", "ITL ms: mean", "p50", "p99", "most"]
    heads += ["TPOT ms: mean", "p50", "p99", "rows used", "blocks in use", "preempted", "hits"]
    table = markdown_table(heads, [_cells(name, summary) for name, summary in summaries.items()])
    return (
        f"{table}\n\nTTFT: from arrival to the first token, including the queue. ITL: between two tokens of an "
        f"answer. TPOT: its mean over an answer. Clock: {'CPU' if clock == 'cpu' else 'wall'} seconds of the steps; "
        "time without work is skipped, not waited for.\n"
    )


def to_json(summaries: dict[str, Summary]) -> dict[str, Any]:
    """All numbers by policy, times in seconds."""
    return {
        name: {**asdict(summary), "tokens_per_second": summary.tokens_per_second, "hit_rate": summary.hit_rate}
        for name, summary in summaries.items()
    }


def _cells(name: str, s: Summary) -> list[str]:
    return [
        name,
        f"{s.seconds:.1f}",
        f"{s.tokens_per_second:.1f}",
        *_spread(s.first_token, 1, 2),
        *_spread(s.gap, 1000, 0),
        f"{1000 * s.gap.most:.0f}",
        *_spread(s.per_token, 1000, 0),
        f"{s.rows_used:.0%}",
        f"{s.blocks_in_use:.0f}",
        str(s.counts.preempted),
        f"{s.hit_rate:.0%}",
    ]


def _spread(spread: Spread, unit: float, digits: int) -> list[str]:
    return [f"{unit * value:.{digits}f}" for value in (spread.mean, spread.p50, spread.p99)]
