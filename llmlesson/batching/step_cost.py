"""How long a step takes on a machine: computed from its peak rates, or read from a measured curve."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from llmlesson.batching.scheduler import Plan
from llmlesson.engine.config import ModelConfig
from llmlesson.errors import LessonError
from llmlesson.measure import cost

if TYPE_CHECKING:
    from llmlesson.engine import Engine

StepCost = Callable[[Plan], float]


def roofline_cost(
    config: ModelConfig,
    flops_per_second: float,
    bytes_per_second: float,
    dtype: torch.dtype = torch.bfloat16,
    quantized: str | None = None,
) -> StepCost:
    """The shortest time that these peak rates allow: arithmetic or memory, whichever takes longer.

    Weights are read once per step, no matter how many requests share it; each request reads its own K and V. A real
    machine takes longer, especially for short steps.
    """

    def seconds(plan: Plan) -> float:
        parts = [(cost.prefill(config, share.count, share.start, 1, dtype, quantized), share) for share in plan.shares]
        flops = sum(part.flops - (0 if share.chooses else part.head_flops) for part, share in parts)
        kv_bytes = sum(part.kv_read_bytes + part.kv_written_bytes for part, _ in parts)
        return max(flops / flops_per_second, (parts[0][0].weight_bytes + kv_bytes) / bytes_per_second)

    return seconds


def curve_cost(curve: Mapping[int, float]) -> StepCost:
    """The time that a measured machine takes for this many tokens, no matter whose they are.

    curve: seconds by tokens in a step, see `measure_curve`. The time is linear between two points, and goes on past the
    last one at the same slope. The length of the context is left out: short contexts cost little.
    """
    if len(curve) < 2 or min(curve) < 1:
        raise LessonError("A curve needs seconds for at least two different numbers of tokens, each at least 1.")
    sizes = sorted(curve)

    def seconds(plan: Plan) -> float:
        right = min(max(1, bisect_left(sizes, plan.tokens)), len(sizes) - 1)
        low, high = sizes[right - 1], sizes[right]
        part = (max(plan.tokens, sizes[0]) - low) / (high - low)
        return curve[low] + part * (curve[high] - curve[low])

    return seconds


def measure_curve(
    engine: Engine,
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Seconds for a step on this machine by its number of tokens, best of `repeats`: {tokens: seconds}."""
    seconds: dict[int, float] = {}
    ids = [token % engine.config.vocab_size for token in range(max(sizes))]
    cache = engine.new_cache(max(sizes))
    for size in sizes:
        times = []
        for _ in range(repeats + 1):
            cache.truncate(0)
            before = clock()
            engine.prefill(ids[:size], cache)
            times.append(clock() - before)
        seconds[size] = min(times[1:])
    return seconds
