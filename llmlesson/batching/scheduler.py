"""Who reads how many tokens in the next step. No model and no tensors: the same object plans for a simulated machine.

There are no phases. Every request has a text that is known, its prompt and its answer so far, and a number: how many
tokens of it are computed, K and V in the cache. It wants the rest. A new prompt wants all of its tokens, a running
answer the one that was chosen last, a long prompt what the last chunk left over, a request that lost its blocks all of
its text again, and one whose beginning was found in the cache the rest of it. When nothing is left over, the step
gives it its next token.
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
        """None for as long as it wants more tokens."""


@dataclass(eq=False)
class Progress:
    """How far one request has come."""

    request: Any  # a Request
    most_blocks: int  # that it may come to need
    salt: str
    computed: int = 0  # tokens of its text whose K and V are in its blocks
    table: list[int] = field(default_factory=list)  # its blocks, in the order of the text
    chain: list[bytes] = field(default_factory=list)  # first the salt's key, then those of its full, computed blocks
    found: int = 0  # tokens that it didn't have to compute when it last started
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
    table: tuple[int, ...]  # blocks for all positions up to start + count, and maybe more
    chooses: bool  # nothing is left over: the logits of its last position give the next token


@dataclass(frozen=True)
class Plan:
    """One step. Empty only where there is no work."""

    shares: tuple[Share, ...]
    admitted: tuple[Any, ...] = ()  # requests that start, or start again, in this step
    preempted: tuple[Any, ...] = ()  # requests that lost their blocks and wait again

    @property
    def tokens(self) -> int:
        """Tokens that are read in this step, by all together."""
        return sum(share.count for share in self.shares)


@dataclass
class Counts:
    """What happened since the scheduler was made."""

    preempted: int = 0
    prompt_tokens: int = 0  # of requests when they first started
    found_tokens: int = 0  # of these, how many lay in the cache
    resumed_tokens: int = 0  # known text of requests when they started again
    found_again_tokens: int = 0  # of these, how many still lay in the cache


class Scheduler:
    """Plans steps for the requests it was given, in the order in which they came.

    pool: the blocks of the cache. token_budget: the most tokens in one step; below max_running, the youngest that run
    wait for the oldest to end. max_running: the most requests that have blocks at the same time. share_prefixes:
    whether a text may start on blocks that another one has filled. static: newcomers wait until all that run have
    ended, as in a static batch; for comparison.

    The order of arrival decides everything: who is served first, who is admitted first, and who goes last when blocks
    run out. Nobody overtakes, so a request starts at the latest when all before it have ended.
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
        self._waiting: deque[Progress] = deque()  # oldest first, and all of them younger than those that run

    @property
    def running(self) -> list[Any]:
        """Requests that have blocks, oldest first."""
        return [progress.request for progress in self._running]

    @property
    def waiting(self) -> list[Any]:
        """Requests that have none yet, or none any more, in the order in which they will start."""
        return [progress.request for progress in self._waiting]

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._all)

    def __contains__(self, request: object) -> bool:
        return request in self._all

    def progress(self, request: Request) -> Progress:
        """How far a request that has not ended has come; to be read only."""
        return self._all[request]

    def add(self, request: Request, max_tokens: int, salt: str = "") -> None:
        """Put a request at the end of the queue.

        max_tokens: the most tokens that it can have in the cache, its prompt and all of its answer but the last token.
        salt: only texts with the same salt share blocks. Raises LessonError if it could never run, even alone.
        """
        if request in self._all or request.finish_reason:
            raise LessonError("A request can be added once, before it has ended. Make a new one.")
        if not request.ids:
            raise LessonError("The prompt is empty: give at least one token.")
        size, blocks = self.pool.block_size, self.pool.num_blocks
        needed = blocks_needed(max(max_tokens, len(request.ids)), size)
        if needed > blocks:
            raise LessonError(
                f"This request can never run: its prompt has {len(request.ids)} tokens, with its answer it may come to "
                f"{max_tokens} in the cache, which takes {needed} blocks of {size}; there are {blocks} "
                f"({blocks * size} tokens). Shorten the prompt, ask for fewer new tokens, or make the cache larger."
            )
        progress = Progress(request, needed, salt)
        self._all[request] = progress
        self._waiting.append(progress)

    def plan(self) -> Plan:
        """The next step. Blocks are taken for it; nothing else changes until `settle`.

        A step that failed can be planned again. Raises LessonError where there is work and no room for any of it,
        which happens only if someone else holds blocks of the pool.
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
            # Whoever lost its blocks in this step would be the first to be admitted, and lose them again.
            while budget and self._waiting and len(self._running) < self.max_running and self._admit(self._waiting[0]):
                progress = self._running[-1]
                count = min(progress.known - progress.computed, budget)
                admitted.append(progress.request)
                shares.append(self._share(progress, count))
                budget -= count
        if self._all and not shares:
            raise LessonError(
                f"No request can go on: {self.pool.num_free} of {self.pool.num_blocks} blocks are free, and others "
                "than the scheduler's requests hold the rest. Release those."
            )
        return Plan(tuple(shares), tuple(admitted), tuple(preempted))

    def settle(self, plan: Plan) -> None:
        """The step has run: K and V are in the cache, and whoever was to choose a token has it in `token_ids`.

        Full blocks become known now and not before. Requests that have ended leave, and their blocks are free.
        Requests that were cancelled since `plan` are passed over.
        """
        settled = [(share, self._all[share.request]) for share in plan.shares if share.request in self._all]
        for share, progress in settled:
            if progress.computed != share.start:
                raise LessonError("This plan is out of date: a request has gone on since it was made.")
            if share.chooses and share.start + share.count == progress.known and not share.request.finish_reason:
                raise LessonError("A request was to choose a token in this step, and its token_ids have not grown.")
        for share, progress in settled:
            progress.computed += share.count
            self._publish(progress)
            if share.request.finish_reason:
                self._leave(progress)

    def cancel(self, request: Request) -> None:
        """The request leaves, and its blocks are free. Nothing happens if it has left already."""
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
        """Let the table reach so many tokens. Returns the requests that lost their blocks for it, maybe this one too.

        The youngest goes first: the oldest always comes to its end, so all do.
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
        """Blocks are lost, tokens are not: it will read prompt and answer again, and choose on from there."""
        self.pool.release(progress.table)
        progress.table, progress.computed = [], 0
        progress.preemptions += 1
        self.counts.preempted += 1
        self._waiting.appendleft(progress)

    def _admit(self, progress: Progress) -> bool:
        """Start the first that waits if all of its known text fits, and a block more for each that may still grow.

        Without that reserve, the next answer that grows beyond its block would throw the newcomer out again.
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
        """The known blocks with which its text begins, and the chain of keys up to there.

        The last token is always left over, since its logits give the next one. The block that it is in is computed
        again as a whole, so that `computed` stays a multiple of the block size.
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
        """The ids in each block that the first `tokens` tokens fill, from block number `first` on."""
        size = self.pool.block_size
        if first < tokens // size:
            text = [*progress.request.ids, *progress.request.token_ids]
            for index in range(first, tokens // size):
                yield text[index * size : (index + 1) * size]

    def _leave(self, progress: Progress) -> None:
        self.pool.release(progress.table)
        del self._all[progress.request]
        (self._running if progress in self._running else self._waiting).remove(progress)
