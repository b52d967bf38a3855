"""The benchmark: time to first token and decode speed of our engine and transformers' `generate`, in one run.

Contenders take turns within each repeat, so that other work on the machine affects all of them.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from llmlesson.benchmark.contenders import (
    Contender,
    Prompts,
    ours,
    ours_without_cache,
    transformers_generate,
    transformers_model,
)
from llmlesson.engine.load import load
from llmlesson.engine.quantized import QUANTIZED
from llmlesson.errors import LessonError
from llmlesson.measure import cost, roofline
from llmlesson.measure.roofline import Placement, Roofline
from llmlesson.measure.timing import Sample

if TYPE_CHECKING:
    from llmlesson.engine import Engine

PROMPT_TOKENS = (32, 128, 512)
BATCHES = (1, 4)
STEPS = 8  # decode steps per run
FEWEST, MOST = 3, 7  # runs of each contender at each workload
ENOUGH = 12.0  # after so many seconds for a workload, FEWEST runs are enough

OURS, NO_CACHE = "llmlesson", "llmlesson, no cache"
QUANTIZED_OURS = {f"llmlesson, {dtype} weights": dtype for dtype in QUANTIZED}
INT8, INT4 = QUANTIZED_OURS
DYNAMIC, STATIC = "transformers, dynamic cache", "transformers, static cache"


@dataclass(frozen=True)
class Row:
    """One contender at one workload."""

    contender: str
    prompt_tokens: int
    batch: int
    first: Placement  # prefill, up to the first token on the host; `seconds` is the median
    step: Placement  # a decode step, by its work with a cache (or without one, for the contender that has none)
    first_sample: Sample  # one per repeat
    step_sample: Sample  # one per step and repeat

    @property
    def tokens_per_second(self) -> float:
        """Decode speed over the whole batch."""
        return self.batch / self.step_sample.median


@dataclass(frozen=True)
class Report:
    """A run of the benchmark."""

    model: str
    roofline: Roofline
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]  # what could not be run, and why


def run(engine: Engine, prompt_tokens: Sequence[int] = (), batches: Sequence[int] = BATCHES) -> Report:
    """Run the benchmark on an engine made by `llmlesson.load`, with `engine.name` as its name for transformers.

    prompt_tokens: lengths to measure with one prompt; by default 32, 128 and 512, as far as the context allows.
    batches: batch sizes to measure at the first length. Raises LessonError for sizes that do not fit.
    """
    context = engine.config.max_position_embeddings - STEPS - 1
    lengths = list(prompt_tokens) or [length for length in PROMPT_TOKENS if length <= context]
    wrong = [length for length in lengths if not 1 <= length <= context]
    if wrong or not lengths:
        raise LessonError(
            f"A prompt of {wrong[0] if wrong else min(PROMPT_TOKENS)} tokens can't be measured: with {STEPS} decode "
            f"steps, {engine.name} has room for 1 to {context}. Choose the lengths with --prompt-tokens."
        )
    if min(batches, default=0) < 1:
        raise LessonError("Batch sizes must be whole numbers of at least 1.")
    workloads = [(length, 1) for length in lengths] + [(lengths[0], batch) for batch in batches if batch > 1]

    say("Measuring the limits of this device")
    # Measured in this run, not the best on file: on a shared host our share of bandwidth changes from minute to minute.
    peaks = roofline.measure(engine.device, engine.dtype, engine.model.nbytes)
    contenders = {OURS: ours(engine)}
    say("Loading the same weights into transformers")
    reference = transformers_model(engine.name, engine)
    contenders[DYNAMIC] = transformers_generate(reference, "dynamic")
    contenders[STATIC] = transformers_generate(reference, "static")
    contenders[NO_CACHE] = ours_without_cache(engine)
    if engine.device.type == "cpu" and engine.dtype == torch.float32 and not engine.model.quantized:
        threads = torch.get_num_threads()
        for name, dtype in QUANTIZED_OURS.items():
            say(f"Loading them as {dtype}")
            contenders[name] = ours(load(engine.name, device="cpu", dtype=dtype))
        torch.set_num_threads(threads)  # loading an engine changes it
    rows: list[Row] = []
    left_out: list[str] = []
    for length, batch in workloads:
        say(f"Prompts of {length} tokens, batch size {batch}")
        entered = {name: run for name, run in contenders.items() if name != NO_CACHE or batch == 1}
        prompts = random_prompts(engine.config.vocab_size, length, batch)
        arrivals = measure(entered, prompts, left_out)
        rows += [row(name, engine, peaks, length, batch, runs) for name, runs in arrivals.items()]
    quantized = engine.model.quantized
    model = engine.name + (f" (llmlesson with {quantized} weights)" if quantized else "")
    return Report(model, peaks, tuple(rows), tuple(left_out))


def random_prompts(vocab_size: int, length: int, batch: int) -> Prompts:
    """The same ids every time: the work doesn't depend on them."""
    choose = random.Random(0)
    return [choose.choices(range(vocab_size), k=length) for _ in range(batch)]


def measure(contenders: Mapping[str, Contender], prompts: Prompts, left_out: list[str]) -> dict[str, list[list[float]]]:
    """The arrival times of several runs of each contender. They take turns, after a warm-up run each.

    A contender that fails is left out, and the reason is added to `left_out`.
    """
    arrivals: dict[str, list[list[float]]] = {}
    for name, contender in contenders.items():
        try:
            contender(prompts, steps_of(name))  # with the same shapes, for which CUDA compiles a static cache
            arrivals[name] = []
        except RuntimeError as error:  # out of memory, or torch.compile lacks something
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            left_out.append(f"{name}, {len(prompts[0])} tokens, batch size {len(prompts)}: {reason}")
    started = time.perf_counter()
    for repeat in range(MOST):
        if repeat >= FEWEST and time.perf_counter() - started > ENOUGH:
            break
        order = list(arrivals)
        start = repeat % max(len(order), 1)  # so that nobody always runs after the same one
        for name in order[start:] + order[:start]:
            arrivals[name].append(contenders[name](prompts, steps_of(name)))
    return arrivals


def steps_of(contender: str) -> int:
    """Decode steps per run: without a cache each is a whole prefill, so one is enough."""
    return 1 if contender == NO_CACHE else STEPS


def row(name: str, engine: Engine, peaks: Roofline, length: int, batch: int, runs: Sequence[Sequence[float]]) -> Row:
    first = Sample.of(arrivals[0] for arrivals in runs)
    step = Sample.of(after - before for arrivals in runs for before, after in pairwise(arrivals))
    again = name == NO_CACHE
    quantized = engine.model.quantized if name in (OURS, NO_CACHE) else QUANTIZED_OURS.get(name)

    def work(tokens: int, cached: int) -> cost.Cost:
        return cost.prefill(engine.config, tokens, cached, batch, engine.dtype, quantized)

    return Row(
        contender=name,
        prompt_tokens=length,
        batch=batch,
        first=peaks.place(work(length, 0), first.median),
        step=peaks.place(work(length + 1, 0) if again else work(1, length + STEPS // 2), step.median),
        first_sample=first,
        step_sample=step,
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
