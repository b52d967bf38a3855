"""What the benchmark runs: our engine and transformers' `generate`, on the same weights, with the same clock.

A contender takes prompts of equal length, [B][T], and a number of decode steps. It returns when each token (the first,
and one per step) reached the host, in seconds since the call: what a user would see. It never stops early.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from llmlesson.batching.batch_engine import BatchEngine
from llmlesson.engine.load import find_folder

if TYPE_CHECKING:
    from llmlesson.engine import Engine

Prompts = list[list[int]]
Contender = Callable[[Prompts, int], list[float]]


def ours(engine: Engine) -> Contender:
    """`engine.stream`, or for several prompts a BatchEngine that reads them all in one step."""
    endless = copy.copy(engine)
    endless.eos_token_ids = frozenset()

    def run(prompts: Prompts, steps: int) -> list[float]:
        arrivals = []
        started = time.perf_counter()
        if len(prompts) == 1:
            for _ in endless.stream(prompts[0], max_new_tokens=1 + steps):
                arrivals.append(time.perf_counter() - started)
            return arrivals
        total = len(prompts) * (len(prompts[0]) + steps)
        batch = BatchEngine(
            endless, -(-total // 16) + len(prompts), token_budget=total, max_running=len(prompts), share_prefixes=False
        )
        started = time.perf_counter()
        for prompt in prompts:
            batch.add(prompt, max_new_tokens=1 + steps)
        while len(batch):
            batch.step()
            arrivals.append(time.perf_counter() - started)
        return arrivals

    return run


def ours_without_cache(engine: Engine) -> Contender:
    """Reads everything again for each token. One prompt at a time."""

    def run(prompts: Prompts, steps: int) -> list[float]:
        arrivals = []
        [ids] = prompts
        started = time.perf_counter()
        for _ in range(1 + steps):
            _, token = engine.prefill(ids)
            ids = [*ids, token]
            arrivals.append(time.perf_counter() - started)
        return arrivals

    return run


def transformers_model(name: str, engine: Engine) -> Any:
    """The model that `engine` was loaded from, in transformers, with the same dtype and device."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        find_folder(name), dtype=engine.dtype, local_files_only=True
    )
    # Greedy, and no end-of-sequence: the model's own settings for sampling would only cause warnings.
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
    return model.to(engine.device).eval()


def transformers_generate(model: Any, cache: str) -> Contender:
    """`model.generate` with this cache implementation, "dynamic" or "static", and otherwise its defaults."""

    def run(prompts: Prompts, steps: int) -> list[float]:
        ids = torch.tensor(prompts, device=model.device)
        arrivals = _Arrivals()
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=1 + steps,
            cache_implementation=cache,
            streamer=arrivals,
        )
        if len(arrivals.seconds) != 1 + steps:
            raise RuntimeError(f"generate produced {len(arrivals.seconds)} tokens instead of {1 + steps}")
        return arrivals.seconds

    return run


class _Arrivals:
    """A transformers streamer that notes when tokens arrive. The first thing it receives is the prompt."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = time.perf_counter()
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_seen:
            self.seconds.append(time.perf_counter() - self._started)
        self._prompt_seen = True

    def end(self) -> None:
        pass
