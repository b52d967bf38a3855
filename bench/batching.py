"""Measures what batching gives and costs on this machine, and prints a Markdown section for RESULTS.md.

    OMP_NUM_THREADS=1 python bench/batching.py

All times are CPU seconds of this process, which other work on the machine disturbs least; with one thread they are what
a clock would show on a machine that does nothing else. What is compared takes turns. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from datetime import date

import torch

import llmlesson
from llmlesson import BatchEngine, Engine
from llmlesson.batching.block_pool import BlockPool
from llmlesson.batching.scheduler import Scheduler
from llmlesson.batching.trace import POLICIES, WHOLE_PROMPTS, Arrival, random_trace, replay
from llmlesson.benchmark.padded_batch import PaddedBatch
from llmlesson.benchmark.report import markdown_table
from llmlesson.benchmark.traces import run_trace, to_markdown
from llmlesson.measure.machine import device_name

CLOCK = time.process_time


def random_ids(engine: Engine, tokens: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(engine.config.vocab_size), k=tokens)


def endless(engine: Engine) -> Engine:
    """The engine without tokens that end an answer."""
    engine = copy.copy(engine)
    engine.eos_token_ids = frozenset()
    return engine


def timed(work: Callable[[], object]) -> float:
    before = CLOCK()
    work()
    return CLOCK() - before


def best_in_turns(works: list[Callable[[], object]], repeats: int) -> list[float]:
    """The shortest time of each, after one run to warm up."""
    for work in works:
        work()
    times = [[timed(work) for work in works] for _ in range(repeats)]
    return [min(column) for column in zip(*times, strict=True)]


def policies(engine: Engine, requests: int = 16, rate: float = 0.8, prompt: float = 109, answer: float = 35) -> str:
    """One trace under each policy."""
    context = min(1024, engine.config.max_position_embeddings)
    trace = random_trace(requests, rate, prompt, answer, longest=context, vocab_size=engine.config.vocab_size, seed=4)
    played = {policy: run_trace(engine, trace, policy, token_budget=64, clock="cpu").summary() for policy in POLICIES}
    static, continuous = played["static"], played["continuous"]
    lengths = [len(arrival.ids) for arrival in trace], [arrival.new_tokens for arrival in trace]
    return (
        f"{requests} requests, {rate} a second (Poisson), prompts of {min(lengths[0])} to {max(lengths[0])} tokens "
        f"(mean {sum(lengths[0]) / requests:.0f}), answers of {min(lengths[1])} to {max(lengths[1])} "
        f"(mean {sum(lengths[1]) / requests:.0f}), at most 8 at once, chunks within a budget of 64:\n\n"
        + to_markdown(played, "cpu")
        + f"\nContinuous against static: TTFT {static.first_token.mean / continuous.first_token.mean:.1f} × better, "
        f"throughput {continuous.tokens_per_second / static.tokens_per_second:.2f} ×, "
        f"ITL {continuous.gap.mean / static.gap.mean:.2f} × as long.\n"
    )


def long_prompt(engine: Engine, tokens: int = 1000, context: int = 20) -> str:
    """Four requests decode, and a long prompt arrives."""
    lines, first = [], None
    for budget in (WHOLE_PROMPTS, 260, 132, 68):
        trace = [Arrival(0.0, tuple(random_ids(engine, context, seed)), 100) for seed in range(4)]
        trace.append(Arrival(1e-9, tuple(random_ids(engine, tokens, 9)), 1))
        decoding = Scheduled(engine, budget)
        for arrival in trace[:4]:
            decoding.add(arrival)
        for _ in range(4):
            decoding.step()
        usual = min(decoding.step() for _ in range(4))
        long = decoding.add(trace[4])
        gaps = []
        while not long.token_ids:
            gaps.append(decoding.step())
        first = first or (sum(gaps), max(gaps))
        lines.append(
            [
                "whole" if budget == WHOLE_PROMPTS else str(budget),
                f"{sum(gaps):.2f}",
                f"{sum(gaps) / first[0]:.2f}",
                f"{1000 * max(gaps):.0f}",
                f"1/{first[1] / max(gaps):.1f}",
                str(len(gaps)),
                f"{1000 * usual:.0f}",
            ]
        )
    heads = ["budget", "its TTFT s", "× whole", "longest gap ms", "of whole", "tokens the four got", "usual gap ms"]
    return f"Four requests decode; a prompt of {tokens:,} tokens arrives:\n\n{markdown_table(heads, lines)}\n"


class Scheduled:
    """A batch whose steps are timed."""

    def __init__(self, engine: Engine, budget: int, running: int = 8) -> None:
        self.batch = BatchEngine(endless(engine), token_budget=budget, max_running=running, share_prefixes=False)

    def add(self, arrival: Arrival) -> llmlesson.engine.Request:
        return self.batch.add(list(arrival.ids), arrival.new_tokens)

    def step(self) -> float:
        return timed(self.batch.step)


def prefix_hit(engine: Engine, head: int = 512, tail: int = 24, repeats: int = 3) -> str:
    """The same beginning for a second time."""
    batch = BatchEngine(engine, token_budget=WHOLE_PROMPTS)
    tails = itertools.count(10_000)

    def first_token(seed: int) -> float:
        request = batch.add([*random_ids(engine, head, seed), *random_ids(engine, tail, next(tails))], 1)
        seconds = timed(batch.step)
        assert request.token_ids
        return seconds

    first_token(999)
    misses = [first_token(seed) for seed in range(repeats)]
    hits = [first_token(seed) for seed in range(repeats)]
    return (
        f"Prompts of {head} tokens that another had before and {tail} own ones, time to the first token: "
        f"{min(misses):.2f} s the first time, {min(hits):.3f} s after that, {min(misses) / min(hits):.1f} × better.\n"
    )


def reserving(slots: int = 16_384, requests: int = 300) -> str:
    """How many requests share a memory, by the size of a block. Counted, not measured."""
    trace = random_trace(requests, math.inf, 239, 213, longest=2048, seed=0)
    lines, most = [], 0.0
    for size in (2048, 256, 128, 64, 16, 1):
        scheduler = Scheduler(BlockPool(slots // size, size), WHOLE_PROMPTS, 10_000, share_prefixes=False)
        played = replay(trace, scheduler, lambda plan: 1.0)
        at_once = sum(len(report.plan.shares) for report in played.reports) / len(played.reports)
        most = most or at_once
        summary = played.summary()
        lines.append(
            [
                f"{size:,}" + (" (the maximum, reserved)" if size == 2048 else ""),
                f"{at_once:.1f}",
                f"{at_once / most:.1f}",
                f"{summary.slots_filled:.1%}",
                f"{summary.steps:,}",
                str(summary.counts.preempted),
            ]
        )
    heads = ["block size", "requests at once", "× reserved", "slots filled", "steps for all", "preempted"]
    return (
        f"{requests} requests at once (lognormal, prompts mean 239, answers mean 213), {slots:,} slots, a context of "
        f"2,048; counted, no model:\n\n{markdown_table(heads, lines)}\n"
    )


def steps_by_rows(
    engine: Engine, int8: Engine, context: int = 200, repeats: int = 5, all_rows: Sequence[int] = (1, 8, 16, 32)
) -> str:
    """Decode steps of more and more requests, paged and contiguous."""
    lines = []
    for rows in all_rows:
        prompts = [random_ids(engine, context, seed) for seed in range(rows)]
        paged = Scheduled(engine, WHOLE_PROMPTS, rows).batch
        for prompt in prompts:
            paged.add(prompt, 40)
        paged.step()
        padded = PaddedBatch(engine, prompts, context + 40)

        def step_with(other: Engine, batch: BatchEngine = paged) -> object:
            batch.engine = other  # both have the same shapes, so that one can go on where the other was
            return batch.step()

        works: list[Callable[[], object]] = [
            lambda: step_with(endless(engine)),
            lambda batch=padded: batch.step(batch.logits.argmax(-1).tolist()),
            lambda: step_with(endless(int8)),
        ]
        fp32, contiguous, small = best_in_turns(works, repeats)
        lines.append(
            [
                str(rows),
                *(f"{1000 * seconds:.0f}" for seconds in (fp32, contiguous)),
                f"{fp32 / contiguous:.2f}",
                f"{rows / fp32:.1f}",
                f"{1000 * small:.0f}",
                f"{rows / small:.1f}",
            ]
        )
    heads = ["rows", "paged ms", "contiguous ms", "ratio", "paged tokens/s", "int8, paged ms", "tokens/s"]
    return f"A decode step with {context} tokens of context, float32 and int8:\n\n{markdown_table(heads, lines)}\n"


def overhead(engine: Engine, rows: int = 32, context: int = 200, steps: int = 6) -> str:
    """What planning costs beside the model."""
    batch = BatchEngine(endless(engine), token_budget=WHOLE_PROMPTS, max_running=rows)
    spent = [0.0]

    def watched(method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            before = CLOCK()
            try:
                return method(*args)
            finally:
                spent[0] += CLOCK() - before

        return call

    for seed in range(rows):
        batch.add(random_ids(engine, context, seed), 40)
    batch.step()
    batch.scheduler.plan = watched(batch.scheduler.plan)  # type: ignore[method-assign,assignment]
    batch.scheduler.settle = watched(batch.scheduler.settle)  # type: ignore[method-assign,assignment]
    total = sum(timed(batch.step) for _ in range(steps))
    milliseconds = 1000 * spent[0] / steps
    return f"Scheduler and pool at {rows} requests: {milliseconds:.2f} ms a step, {spent[0] / total:.2%} of it.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("parts", nargs="*", help="policies, long_prompt, prefix_hit, reserving, steps, overhead")
    args = parser.parse_args()
    engine = llmlesson.load(args.model, device="cpu")
    int8 = llmlesson.load(args.model, device="cpu", dtype="int8")
    threads = torch.get_num_threads()
    print(f"## {date.today().isoformat()}: batching on {device_name(engine.device)}, {threads} thread(s)\n")
    parts: dict[str, Callable[[], str]] = {
        "policies": lambda: policies(engine),
        "long_prompt": lambda: long_prompt(engine),
        "prefix_hit": lambda: prefix_hit(engine),
        "steps": lambda: steps_by_rows(engine, int8),
        "overhead": lambda: overhead(engine),
        "reserving": reserving,
    }
    for name, part in parts.items():
        if not args.parts or name in args.parts:
            print(part(), flush=True)


if __name__ == "__main__":
    main()
