"""`python tools/gpu_check.py [FILE]`: everything that needs a GPU to be checked, in one run of a few minutes.

Parity with the CPU, the CUDA graph against eager, batches, memory, and the benchmark. Writes JSON with the machine's
name and versions; exit status 1 if a check failed.
"""

from __future__ import annotations

import copy
import json
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

import llmlesson
from llmlesson.benchmark import bench, report
from llmlesson.engine.cuda_graph import SMALLEST_BUCKET, GraphedDecode
from llmlesson.errors import LessonError
from llmlesson.measure.machine import device_name
from llmlesson.measure.timing import Sample, Stopwatch, speedup

if TYPE_CHECKING:
    from llmlesson.engine import Engine

PROMPT = "Explain quantum computing like I'm ten."
STEPS = 300  # from 38 prompt tokens this passes the first bucket of 256 slots


def parity(engine: Engine, reference: Engine) -> dict[str, Any]:
    """Compare a prompt's logits and greedy tokens with another device's. Passes within 1e-2 and with equal tokens.

    Both in float32. Devices sum in different orders, so logits differ in their last digits.
    """
    ids = reference.tokenizer.chat(PROMPT)
    difference = (engine.logits(ids).cpu() - reference.logits(ids).cpu()).abs().max().item()
    tokens = [e.generate(ids, max_new_tokens=40).token_ids for e in (engine, reference)]
    return {"passed": difference < 1e-2 and tokens[0] == tokens[1], "largest_logit_difference": difference}


def graph_against_eager(engine: Engine) -> dict[str, Any]:
    """Compare graph replay with eager steps: the tokens, the logits, and the time of a step."""
    ids = engine.tokenizer.chat(PROMPT)
    graphed_cache, eager_cache = (engine.new_cache(len(ids) + STEPS) for _ in range(2))
    _, token = engine.prefill(ids, graphed_cache)
    engine.prefill(ids, eager_cache)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step = GraphedDecode(engine.model, graphed_cache)
        differences, laps = [], []
        for replay in (True, False):
            stopwatch = Stopwatch(engine.device)
            stopwatch.start()
            rows, next_token = [], torch.tensor(token, device=engine.device)
            for _ in range(STEPS):
                if replay:
                    logits = step.logits(next_token)
                else:
                    logits = engine.logits(next_token[None], eager_cache)[0]
                stopwatch.lap()
                rows.append(logits)
                next_token = logits.argmax()
            laps.append(Sample.of(stopwatch.laps()[STEPS // 10 :]))
            differences.append(torch.stack(rows))
    graphed, eager = differences
    # If rounding decides a near tie differently, the texts diverge. We compare what came before.
    parted = (graphed.argmax(-1) != eager.argmax(-1)).nonzero().flatten().tolist()
    same = parted[0] if parted else STEPS
    difference = (graphed[:same] - eager[:same]).abs().max().item() if same else float("inf")
    buckets = sorted(step.graphs)
    captured = engine.device.type != "cuda" or SMALLEST_BUCKET in buckets
    return {
        "passed": captured and same > STEPS // 3 and difference < 0.5,
        "buckets_captured": buckets,
        "warnings": [str(warning.message) for warning in caught],
        "equal_tokens": same,
        "largest_logit_difference": difference,
        "graph_step_seconds": laps[0].median,
        "eager_step_seconds": laps[1].median,
        "graph_speedup": speedup(laps[0], laps[1]),
    }


def batch(engine: Engine, requests: int = 10, tokens: int = 30, rows: Sequence[int] = (1, 8, 32)) -> dict[str, Any]:
    """Compare a batch that lacks room, and so preempts, with the engine alone; and measure the time of a step."""
    engine = copy.copy(engine)
    engine.eos_token_ids = frozenset()
    prompts = [engine.tokenizer.chat(f"{PROMPT} Say it in {n} words.") for n in range(3, 3 + requests)]
    expected = [engine.generate(prompt, max_new_tokens=tokens).token_ids for prompt in prompts]
    blocks = 2 * (len(prompts[-1]) + tokens) // 16
    small = llmlesson.BatchEngine(engine, blocks, token_budget=60, share_prefixes=False)
    added = [small.add(prompt, max_new_tokens=tokens) for prompt in prompts]
    while len(small):
        small.step()
        small.scheduler.check()
    # In float32 all are equal; in bfloat16 the other rows of a batch can change a near tie.
    same = sum(request.token_ids == answer for request, answer in zip(added, expected, strict=True))
    seconds = {}
    for count in rows:
        full = llmlesson.BatchEngine(engine, max_running=count, token_budget=10_000)
        for number in range(count):
            full.add(prompts[number % len(prompts)], max_new_tokens=60)
        full.step()
        seconds[count] = Sample.of(full.step().seconds for _ in range(20)).median
    return {
        "passed": same >= (requests if engine.dtype == torch.float32 else requests // 2)
        and small.pool.num_free == blocks,
        "equal_answers": same,
        "preempted": small.scheduler.counts.preempted,
        "step_seconds": seconds,
    }


def memory(engine: Engine) -> dict[str, Any]:
    """A cache takes as much memory as `allocated_nbytes` says, up to rounding; one that can't fit is explained."""
    before = torch.cuda.memory_allocated()
    cache = engine.new_cache(4096)
    taken = torch.cuda.memory_allocated() - before
    rounding = 512 * 2 * cache.num_layers
    rows = 2 * torch.cuda.get_device_properties(engine.device).total_memory // cache.allocated_nbytes
    try:
        engine.new_cache(4096, batch=rows)
        message = ""
    except LessonError as error:
        message = str(error)
    fits = cache.allocated_nbytes <= taken <= cache.allocated_nbytes + rounding
    return {"passed": fits and "Out of memory" in message, "cache_nbytes": cache.allocated_nbytes, "taken": taken}


def early_stop(engine: Engine) -> dict[str, Any]:
    """If you stop a stream early, its cache ends at the last token you saw, and the engine still works."""
    expected = engine.generate(PROMPT, max_new_tokens=12).token_ids
    cache = engine.new_cache(200)
    for step in engine.stream(PROMPT, max_new_tokens=100, cache=cache):
        if step.index == 5:
            break
    again = engine.generate(PROMPT, max_new_tokens=12).token_ids
    return {"passed": cache.length == step.cache_length and again == expected}


def benchmark(engine: Engine) -> dict[str, Any]:
    return {"passed": True, **report.to_json(bench.run(engine), date.today())}


def attempt(check: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """One check's result. An error counts as a result, so that the other checks still run."""
    print(f"{check.__name__} …", file=sys.stderr, flush=True)
    try:
        return check(*args)
    except Exception as error:
        return {"passed": False, "error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str]) -> int:
    if not torch.cuda.is_available():
        print("gpu_check: this PyTorch sees no CUDA device, so there is nothing to check.", file=sys.stderr)
        return 1
    on_gpu, on_cpu = (llmlesson.load(device=device, dtype="float32") for device in ("cuda", "cpu"))
    half = llmlesson.load(device="cuda", dtype="bfloat16")
    checks = {
        "parity_float32": attempt(parity, on_gpu, on_cpu),
        "graph_float32": attempt(graph_against_eager, on_gpu),
        "graph_bfloat16": attempt(graph_against_eager, half),
        "batch_float32": attempt(batch, on_gpu),
        "batch_bfloat16": attempt(batch, half),
        "memory": attempt(memory, half),
        "early_stop": attempt(early_stop, half),
        "benchmark": attempt(benchmark, half),
    }
    result = {
        "date": date.today().isoformat(),
        "device": device_name(half.device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": transformers.__version__,
        "checks": checks,
    }
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if arguments:
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        print(text)
    for name, check in checks.items():
        print(f"{'ok    ' if check['passed'] else 'FAILED'} {name} {check.get('error', '')}", file=sys.stderr)
    return 0 if all(check["passed"] for check in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
