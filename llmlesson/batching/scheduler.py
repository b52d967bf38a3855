"""Decides how many tokens each request reads in the next step. No model and no tensors, so simulations use it too.

There are no phases. Every request has a known text, its prompt and its answer so far, and a number: how many tokens of
that text are computed, with K and V in the cache. It needs the rest. A new prompt needs all of its tokens, a running
answer the one chosen last, a long prompt what the last chunk left over, a request that lost its blocks its whole text
again, and one whose beginning was found in the cache what comes after it. If a step reads all of the rest, the request
gets its next token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmlesson.batching.block_pool import BlockPool, blocks_needed, first_key, next_key
from llmlesson.errors import LessonError


class Request(Protocol):
    """What the scheduler asks of a request. It must be hashable by identity."""

    @property
    def ids(self) -> Sequence[int]:
        """The prompt."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The answer so far; it only grows."""

    @property
    def finish_reason(self) -> str | None:
        """None as long as it needs more tokens."""


@dataclass(eq=False)
class Progress:
    """How far one request has come."""

    request: Any  # a Request
    most_blocks: int  # the most that it can ever need
    salt: str
    computed: int = 0  # tokens of its text whose K and V are in its blocks
    table: list[int] = field(default_factory=list)  # its blocks, in the order of the text
    chain: list[bytes] = field(default_factory=list)  # first the salt's key, then those of its full, computed blocks
    found: int = 0  # tokens found in the cache when it last started
    preemptions: int = 0

    @property
    def known(self) -> int:
        """Tokens of prompt and answer so far."""
        return len(self.request.ids) + len(self.request.token_ids)


@dataclass(frozen=True)
class Share:
    """What one request reads in a step: `count` tokens of its text, from position `start` on."""

    request: Any  # a Request
    start: int
    count: int
    table: tuple[int, ...]  # blocks for all positions up to start + count, and perhaps more
    chooses: bool  # it reads all that is known, so the logits of its last position give the next token


@dataclass(frozen=True)
class Plan:
    """One step. It is empty only if there is no work."""

    shares: tuple[Share, ...]
    admitted: tuple[Any, ...] = ()  # requests that start or restart in this step
    preempted: tuple[Any, ...] = ()  # requests that lost their blocks and wait again

    @property
    def tokens(self) -> int:
        """How many tokens all requests together read in this step."""
        return sum(share.count for share in self.shares)


@dataclass
class Counts:
    """What happened since the scheduler was made."""

    preempted: int = 0
    prompt_tokens: int = 0  # of requests when they first started
    found_tokens: int = 0  # how many of these were in the cache
    resumed_tokens: int = 0  # tokens of requests when they restarted
    found_again_tokens: int = 0  # how many of these were still in the cache


class Scheduler:
    """Plans steps for requests, first come, first served.

    pool: the blocks of the cache. token_budget: the most tokens in one step; if it is below max_running, the youngest
    running requests wait for the oldest to end. max_running: the most requests with blocks at the same time.
    share_prefixes: whether a text may start on blocks that another one has filled. static: new requests wait until all
    running ones have ended, as in a static batch; for comparison.

    The order of arrival decides everything: who is served first, who is admitted first, and who loses its blocks last
    when they run out. Nobody overtakes, so a request starts at the latest when all earlier ones have ended.
    """

    def __init__(
        self,
        pool: BlockPool,
        token_budget: int = 256,
        max_running: int = 8,
        share_prefixes: bool = True,
        static: bool = False,
    ) -> None:
        for name, value in (("token_budget", token_budget), ("max_running", max_running)):
            if value < 1:
                raise LessonError(f"{name} is {value}: it must be at least 1.")
        self.pool = pool
        self.token_budget = token_budget
        self.max_running = max_running
        self.share_prefixes = share_prefixes
        self.static = static
        self.counts = Counts()
        self._all: dict[Any, Progress] = {}  # in the order of arrival
        self._running: list[Progress] = []  # oldest first
        self._waiting: deque[Progress] = deque()  # oldest first; all are younger than the running ones

    @property
    def running(self) -> list[Any]:
        """Requests that have blocks, oldest first."""
        return [progress.request for progress in self._running]

    @property
    def waiting(self) -> list[Any]:
        """Requests without blocks, in the order in which they will start."""
        return [progress.request for progress in self._waiting]

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._all)

    def __contains__(self, request: object) -> bool:
        return request in self._all

    def progress(self, request: Request) -> Progress:
        """How far a request has come that has not ended. Don't change it."""
        return self._all[request]

    def add(self, request: Request, max_tokens: int, salt: str = "") -> None:
        """Put a request at the end of the queue.

        max_tokens: the most tokens that it can have in the cache: its prompt and its answer without the last token.
        salt: only texts with the same salt share blocks. Raises LessonError if it could never run, even alone.
        """
        if request in self._all or request.finish_reason:
            raise LessonError("This request was added before, or has ended. Make a new one.")
        if not request.ids:
            raise LessonError("The prompt is empty: give at least one token.")
        size, blocks = self.pool.block_size, self.pool.num_blocks
        needed = blocks_needed(max(max_tokens, len(request.ids)), size)
        if needed > blocks:
            raise LessonError(
                f"This request can never run: its prompt has {len(request.ids)} tokens. With its answer it may need "
                f"{max_tokens} in the cache, which takes {needed} blocks of {size}; there are {blocks} "
                f"({blocks * size} tokens). Shorten the prompt, ask for fewer new tokens, or make the cache larger."
            )
        progress = Progress(request, needed, salt)
        self._all[request] = progress
        self._waiting.append(progress)

    def plan(self) -> Plan:
        """The next step. This takes blocks for it; nothing else changes until `settle`.

        A step that failed can be planned again. Raises LessonError if there is work but no room for any of it, which
        happens only if someone else holds blocks of the pool.
        """
        shares: list[Share] = []
        preempted: list[Any] = []
        admitted: list[Any] = []
        budget = self.token_budget
        while len(shares) < len(self._running) and budget:
            progress = self._running[len(shares)]
            count = min(progress.known - progress.computed, budget)
            preempted += self._make_room(progress, progress.computed + count)
            if progress in self._running:
                shares.append(self._share(progress, count))
                budget -= count
        if not preempted and not (self.static and self._running):
            # A request that lost its blocks in this step would be admitted first, and lose them again.
            while budget and self._waiting and len(self._running) < self.max_running and self._admit(self._waiting[0]):
                progress = self._running[-1]
                count = min(progress.known - progress.computed, budget)
                admitted.append(progress.request)
                shares.append(self._share(progress, count))
                budget -= count
        if self._all and not shares:
            raise LessonError(
                f"No request can go on: {self.pool.num_free} of {self.pool.num_blocks} blocks are free, and the rest "
                "are held outside this scheduler. Release those."
            )
        return Plan(tuple(shares), tuple(admitted), tuple(preempted))

    def settle(self, plan: Plan) -> None:
        """Call this after the step has run: K and V are in the cache, and chosen tokens are in `token_ids`.

        Full blocks become known only now. Requests that have ended leave, and their blocks become free. Requests
        cancelled since `plan` are skipped.
        """
        settled = [(share, self._all[share.request]) for share in plan.shares if share.request in self._all]
        for share, progress in settled:
            if progress.computed != share.start:
                raise LessonError("This plan is out of date: a request has gone on since it was made.")
            if share.chooses and share.start + share.count == progress.known and not share.request.finish_reason:
                raise LessonError("A request should have got a token in this step, but its token_ids have not grown.")
        for share, progress in settled:
            progress.computed += share.count
            self._publish(progress)
            if share.request.finish_reason:
                self._leave(progress)

    def cancel(self, request: Request) -> None:
        """Remove a request and free its blocks. Does nothing if it has already left."""
        if request in self._all:
            self._leave(self._all[request])

    def check(self) -> None:
        """Raise AssertionError if blocks, tables and the order of requests contradict each other."""
        self.pool.check(progress.table for progress in self._running)
        assert [*self._running, *self._waiting] == list(self._all.values()), "not in the order of arrival"
        assert len(self._running) <= self.max_running
        for progress in self._waiting:
            assert not progress.table
            assert not progress.computed
        for progress in self._running:
            assert progress.computed <= min(progress.known, len(progress.table) * self.pool.block_size)

    def _share(self, progress: Progress, count: int) -> Share:
        end = progress.computed + count
        return Share(progress.request, progress.computed, count, tuple(progress.table), end == progress.known)

    def _make_room(self, progress: Progress, tokens: int) -> list[Any]:
        """Extend the table to this many tokens. Returns the requests that lost their blocks for it, perhaps this one.

        The youngest loses its blocks first. So the oldest always finishes, and in the end all do.
        """
        preempted = []
        missing = max(0, blocks_needed(tokens, self.pool.block_size) - len(progress.table))
        while missing > self.pool.num_free:
            victim = self._running.pop()
            self._preempt(victim)
            preempted.append(victim.request)
            if victim is progress:
                return preempted
        progress.table += self.pool.take(missing)
        return preempted

    def _preempt(self, progress: Progress) -> None:
        """Take a request's blocks but keep its tokens: it will read prompt and answer again and go on from there."""
        self.pool.release(progress.table)
        progress.table, progress.computed = [], 0
        progress.preemptions += 1
        self.counts.preempted += 1
        self._waiting.appendleft(progress)

    def _admit(self, progress: Progress) -> bool:
        """Start the first waiting request if all of its known text fits, plus a block for each that may still grow.

        Without that reserve, the next answer that outgrows its block would throw the new request out again.
        """
        found, chain = self._find(progress)
        fresh = blocks_needed(progress.known, self.pool.block_size) - len(found)
        revived = sum(not self.pool.holders(block) for block in found)  # these too are no longer free
        reserve = sum(len(other.table) < other.most_blocks for other in self._running)
        if fresh + revived + reserve > self.pool.num_free:
            return False
        self.pool.hold(found)
        progress.table = found + self.pool.take(fresh)
        progress.chain = chain
        progress.computed = progress.found = len(found) * self.pool.block_size
        if progress.preemptions:
            self.counts.resumed_tokens += progress.known
            self.counts.found_again_tokens += progress.found
        else:
            self.counts.prompt_tokens += progress.known
            self.counts.found_tokens += progress.found
        self._running.append(self._waiting.popleft())
        return True

    def _find(self, progress: Progress) -> tuple[list[int], list[bytes]]:
        """The known blocks at the beginning of its text, and the chain of keys up to there.

        The last token is always left to compute, because its logits give the next one. Its whole block is computed
        again, so that `computed` stays a multiple of the block size.
        """
        chain = [first_key(f"{self.pool.epoch} {progress.salt}")]
        found: list[int] = []
        for ids in self._full_blocks(progress, 0, progress.known - 1):
            key = next_key(chain[-1], ids)
            block = self.pool.find([key])
            if not block:
                break
            found += block
            chain.append(key)
        return found, chain

    def _publish(self, progress: Progress) -> None:
        if self.share_prefixes:
            for ids in self._full_blocks(progress, len(progress.chain) - 1, progress.computed):
                block = progress.table[len(progress.chain) - 1]
                progress.chain.append(next_key(progress.chain[-1], ids))
                self.pool.publish(block, progress.chain[-1])

    def _full_blocks(self, progress: Progress, first: int, tokens: int) -> Iterator[Sequence[int]]:
        """The ids in each block that the first `tokens` tokens fill, starting with block number `first`."""
        size = self.pool.block_size
        if first < tokens // size:
            text = [*progress.request.ids, *progress.request.token_ids]
            for index in range(first, tokens // size):
                yield text[index * size : (index + 1) * size]

    def _leave(self, progress: Progress) -> None:
        self.pool.release(progress.table)
        del self._all[progress.request]
        (self._running if progress in self._running else self._waiting).remove(progress)
