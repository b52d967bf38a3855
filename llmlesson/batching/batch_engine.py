"""Many requests on one engine: each step is one forward pass over the tokens that the scheduler gives each request."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from llmlesson.batching.block_pool import BlockPool, blocks_needed
from llmlesson.batching.report import StepReport
from llmlesson.batching.scheduler import Plan, Scheduler, Share
from llmlesson.engine import Engine, Generation, Request, Sampling, Step, Timings
from llmlesson.engine.paged_cache import Span
from llmlesson.engine.prompt import Prompt
from llmlesson.errors import LessonError

# If the number of blocks isn't given, each running request has room for this many tokens on average.
DEFAULT_ROOM = 1024

NO_TOKEN = -1
NO_SCORES = (
    "The model's scores for the next token are NaN or infinite, so this request has ended. If the model runs in "
    'float16, load it with dtype="float32" or "bfloat16"; otherwise its weights are damaged.'
)


class BatchEngine:
    """An engine for many requests at once, with one paged KV cache for all.

    blocks, block_size: size of the cache; without `blocks` it has room for 1,024 tokens for each running request.
    share_prefixes: whether texts with the same beginning share blocks. token_budget: the most tokens that one step
    reads. max_running: the most requests that share a step. static: new requests wait until all running ones have
    ended, for comparison.

    One thread makes the steps. Other threads may call `add` and `cancel` at any time.
    """

    def __init__(
        self,
        engine: Engine,
        blocks: int | None = None,
        block_size: int = 16,
        share_prefixes: bool = True,
        token_budget: int = 256,
        max_running: int = 8,
        static: bool = False,
    ) -> None:
        self.engine = engine
        context = engine.config.max_position_embeddings
        if blocks is None:
            blocks = max_running * blocks_needed(min(DEFAULT_ROOM, context), max(1, block_size))
        self.pool = BlockPool(blocks, block_size)
        self.scheduler = Scheduler(self.pool, token_budget, max_running, share_prefixes, static)
        self.cache = engine.new_paged_cache(blocks, block_size)
        self._inboxes: dict[Request, deque[Step]] = {}  # for each stream: steps that it hasn't yielded yet
        self._lock = threading.Lock()  # held only briefly, never while the model runs
        self._stepping = threading.Lock()

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self.scheduler)

    def add(
        self,
        prompt: Prompt,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        chat: bool = True,
        salt: str = "",
    ) -> Request:
        """Put a request into the queue. The next steps produce its tokens.

        The arguments are those of `Engine.stream`; salt: only requests with the same salt share blocks of the cache.
        Raises LessonError for wrong input, and for a request that the cache could never hold.
        """
        request = self.engine.request(prompt, max_new_tokens, sampling, stop, chat)
        self.enqueue(request, salt)
        return request

    def cancel(self, request: Request) -> None:
        """End a request with the finish_reason "cancelled" and free its blocks. Does nothing if it has ended."""
        with self._lock:
            self.scheduler.cancel(request)
            if request.finish_reason is None:
                request.finish_reason = "cancelled"

    @torch.no_grad()
    def step(self) -> StepReport:
        """One forward pass for the requests that the scheduler chose. If there is no work, the report is empty.

        If the pass fails, no request has changed, and the next step repeats it. A request whose scores are NaN or
        infinite ends alone, with the finish_reason "error", and is in `failed` of the report.
        """
        if not self._stepping.acquire(blocking=False):
            raise LessonError(
                "Another thread is making the steps of this batch. Only one thread may; others can add and cancel."
            )
        try:
            if self.engine.model.recording is not None:
                raise LessonError("record() covers one sequence, not a batch. Leave its `with` block first.")
            started = time.perf_counter()
            with self._lock:
                plan = self.scheduler.plan()
            tokens = self._run(plan) if plan.shares else []
            with self._lock:
                steps, failed = self._settle(plan, tokens, started)
                return StepReport.of(self.scheduler, plan, time.perf_counter() - started, steps, failed)
        finally:
            self._stepping.release()

    def stream(
        self,
        prompt: Prompt,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        chat: bool = True,
        salt: str = "",
    ) -> Iterator[Step]:
        """Answer one prompt, one Step at a time, while all other requests go on. If you stop early, it is cancelled.

        Raises LessonError while it runs if the model's scores are NaN or infinite.
        """
        request = self.engine.request(prompt, max_new_tokens, sampling, stop, chat)
        steps = self._steps_of(request, salt)
        next(steps)  # it is in the queue now, and closing the stream cancels it, even before the first step
        return steps  # type: ignore[return-value]

    def generate(
        self,
        prompts: Sequence[Prompt],
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        chat: bool = True,
        salt: str = "",
        n: int = 1,
    ) -> list[Generation]:
        """Answer several prompts at once, each `n` times: first all answers to the first prompt, and so on.

        If there is a seed, the n answers have consecutive seeds. The other arguments are those of `Engine.generate`.
        The time to the first token includes the time in the queue.
        """
        if isinstance(prompts, str):
            raise LessonError("This is one prompt. Put it in a list: batch.generate([prompt]).")
        started = time.perf_counter()
        requests = [
            self.engine.request(prompt, max_new_tokens, sampled, stop, chat)
            for prompt in prompts
            for sampled in _seeds(sampling or Sampling(), n)
        ]
        added: list[Request] = []
        tokenized = time.perf_counter()
        times: dict[Request, list[float]] = {request: [tokenized] for request in requests}
        try:
            for request in requests:
                self.enqueue(request, salt)
                added.append(request)
            while any(request.finish_reason is None for request in requests):
                report = self.step()
                for request in report.steps:
                    if request in times:
                        times[request].append(time.perf_counter())
        finally:
            for request in added:
                self.cancel(request)
        return [_generation(request, tokenized - started, times[request]) for request in requests]

    def enqueue(self, request: Request, salt: str = "") -> None:
        """Put a request made by `Engine.request` into the queue: see `add`."""
        # The last token of an answer is never read, so it needs no room.
        most = min(len(request.ids) + request.max_new_tokens - 1, self.engine.config.max_position_embeddings)
        with self._lock:
            self.scheduler.add(request, most, salt)

    def _run(self, plan: Plan) -> list[int]:
        """The forward pass. Returns a token for each share that chooses one, in order; NO_TOKEN if it can't."""
        device = self.engine.device
        ids = [token for share in plan.shares for token in _tokens(share)]
        step = self.cache.step([Span(share.table, share.start, share.count) for share in plan.shares])
        x = self.engine.model.forward(torch.tensor([ids], device=device), step)[0]  # [N, H]
        ends, choosing = 0, []
        for share in plan.shares:
            ends += share.count
            if share.chooses:
                choosing.append((ends - 1, share.request))
        if not choosing:
            return []
        logits = self.engine.model.logits(x[torch.tensor([row for row, _ in choosing], device=device)])  # [C, V]
        usable = logits.amax(dim=-1).isfinite()  # [C]; the maximum of a row with a NaN is NaN
        logits = logits.masked_fill(~usable[:, None], 0)  # so that choosing doesn't raise and stop all the others
        chosen = [request.choose(scores) for (_, request), scores in zip(choosing, logits, strict=True)]
        return torch.stack(chosen).where(usable, NO_TOKEN).tolist()  # one wait for all of them

    def _settle(
        self, plan: Plan, tokens: Sequence[int], started: float
    ) -> tuple[dict[Request, Step], tuple[Request, ...]]:
        """(The step of each request that got a token; the requests that failed)."""
        steps: dict[Request, Step] = {}
        failed: list[Request] = []
        choosing = [share for share in plan.shares if share.chooses]
        for share, token in zip(choosing, tokens, strict=True):
            if share.request in self.scheduler:  # not cancelled while the model ran
                if token == NO_TOKEN:
                    share.request.finish_reason = "error"
                    self.scheduler.cancel(share.request)
                    failed.append(share.request)
                    continue
                steps[share.request] = replace(
                    share.request.accept(token),
                    seconds=time.perf_counter() - started,
                    cache_length=share.start + share.count,
                    cache_nbytes=(share.start + share.count) * self.cache.bytes_per_token,
                )
                if share.request in self._inboxes:
                    self._inboxes[share.request].append(steps[share.request])
        self.scheduler.settle(plan)
        return steps, tuple(failed)

    def _steps_of(self, request: Request, salt: str) -> Iterator[Step | None]:
        """Yields None once the request is in the queue, then its steps."""
        inbox = self._inboxes[request] = deque()
        try:
            self.enqueue(request, salt)
            yield None
            while inbox or request.finish_reason is None:
                if inbox:
                    yield inbox.popleft()
                else:
                    self.step()
            if request.finish_reason == "error":
                raise LessonError(NO_SCORES)
        finally:
            self.cancel(request)
            del self._inboxes[request]

    def __repr__(self) -> str:
        return (
            f"BatchEngine({self.engine.name}, {len(self.scheduler.running)} running, {len(self.scheduler.waiting)} "
            f"waiting, {self.pool.num_blocks - self.pool.num_free} of {self.pool.num_blocks} blocks in use)"
        )


def _tokens(share: Share) -> list[int]:
    """The ids that a share reads."""
    text = share.request.tokens
    return text[share.start : share.start + share.count]


def _seeds(sampling: Sampling, n: int) -> list[Sampling]:
    if n < 1:
        raise LessonError(f"n is {n}: it must be at least 1.")
    if sampling.seed is None:
        return [sampling] * n
    return [replace(sampling, seed=sampling.seed + number) for number in range(n)]


def _generation(request: Request, tokenize: float, times: Sequence[float]) -> Generation:
    seconds = [after - before for before, after in pairwise(times)]
    return Generation(
        text=request.text,
        token_ids=request.token_ids,
        finish_reason=request.finish_reason or "",
        timings=Timings(tokenize, seconds[0] if seconds else 0.0, tuple(seconds[1:])),
        prompt_ids=request.ids,
        cache=None,
    )
