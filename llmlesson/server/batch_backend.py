"""The batch engine, as the server sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from llmlesson.batching.batch_engine import NO_SCORES, BatchEngine
from llmlesson.engine import Request, Sampling
from llmlesson.errors import LessonError
from llmlesson.server.protocol import CHAT, ApiError, Call


class BatchBackend:
    """Turns calls into requests, and steps the batch."""

    def __init__(self, batch: BatchEngine) -> None:
        self.batch = batch
        self._read: list[Request] = []  # by the last step
        self.model = batch.engine.name.rstrip("/").rpartition("/")[2] or batch.engine.name
        room = batch.pool.num_blocks * batch.pool.block_size
        self.context = min(batch.engine.config.max_position_embeddings, room)

    def requests(self, call: Call) -> list[Request]:
        engine = self.batch.engine
        made = []
        for prompt in call.prompts:
            ids = engine.prompt_ids(prompt, chat=call.kind == CHAT)
            room = self.context - len(ids)
            if room < 1 or (call.max_tokens or 1) > room:
                asked = "" if call.max_tokens is None else f", and you asked for {call.max_tokens:,} more"
                raise ApiError(
                    400,
                    f"This server's context is {self.context:,} tokens. The prompt has {len(ids):,}{asked}. Shorten "
                    "the prompt, or ask for fewer tokens.",
                    param="messages" if call.kind == CHAT else "prompt",
                    code="context_length_exceeded",
                )
            sampling = Sampling(**call.sampling)
            for number in range(call.n):
                seed = None if sampling.seed is None else sampling.seed + number
                made.append(
                    engine.request(
                        ids,
                        call.max_tokens or room,
                        replace(sampling, seed=seed),
                        list(call.stop),
                        ignore_eos=call.ignore_eos,
                        logprobs=call.logprobs,
                        min_new_tokens=call.min_tokens,
                    )
                )
        return made

    def text(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self.batch.engine.tokenizer.decode(prompt)

    def tokenize(self, prompt: Any, chat: bool, special: bool) -> list[int]:
        engine = self.batch.engine
        if chat:
            return engine.prompt_ids(prompt)
        return engine.tokenizer.raw(prompt) if special else engine.tokenizer.encode(prompt)

    def detokenize(self, ids: list[int]) -> str:
        # vLLM's shows control tokens as well.
        return self.batch.engine.tokenizer.decode(ids, special=True)

    def token_bytes(self, token: int) -> bytes:
        return self.batch.engine.tokenizer.token_bytes(token)

    def enqueue(self, request: Request, salt: str) -> None:
        self.batch.enqueue(request, salt)

    def cancel(self, request: Request) -> None:
        self.batch.cancel(request)

    def step(self) -> Mapping[Any, Any]:
        report = self.batch.step()
        self._read = [share.request for share in report.plan.shares]
        return {**report.steps, **dict.fromkeys(report.failed, LessonError(NO_SCORES))}

    def read(self) -> Collection[Request]:
        return self._read

    def __len__(self) -> int:
        return len(self.batch)

    def load(self) -> tuple[int, int, float]:
        pool, scheduler = self.batch.pool, self.batch.scheduler
        used = (pool.num_blocks - pool.num_free) / pool.num_blocks
        return len(scheduler.running), len(scheduler.waiting), used

    def counts(self) -> tuple[int, int, int]:
        counts = self.batch.scheduler.counts
        return counts.prompt_tokens, counts.found_tokens, counts.preempted
