"""Plays requests through a scheduler without a model, and checks after each step all that must hold in every step.

In place of K and V, a slot holds which text it was computed for: its salt and all tokens up to there. A request that
reads a slot of another text, or one that nothing was written into, is found out at once.
"""

from __future__ import annotations

MOST_STEPS = 3000


class Toy:
    """A request whose answer depends on its text alone, as that of a model does."""

    def __init__(self, ids, new_tokens=1, salt=""):
        self.ids, self.new_tokens, self.salt = list(ids), new_tokens, salt
        self.token_ids: list[int] = []
        self.finish_reason = None

    @property
    def text(self):
        return [*self.ids, *self.token_ids]

    @property
    def most(self):
        """The most tokens that it has in the cache."""
        return len(self.ids) + self.new_tokens - 1

    def choose(self):
        self.token_ids.append((31 * sum(self.text) + len(self.text)) % 11)
        if len(self.token_ids) == self.new_tokens:
            self.finish_reason = "length"

    def answer(self):
        """The whole answer, computed alone."""
        alone = Toy(self.ids, self.new_tokens)
        while alone.finish_reason is None:
            alone.choose()
        return alone.token_ids


class Memory:
    """The slots of all blocks, each with the text that it was computed for."""

    def __init__(self, block_size):
        self.size = block_size
        self.slots: dict[tuple[int, int], int] = {}
        self._texts: dict[tuple[object, int], int] = {}  # (text before, token) -> a number for the text

    def run(self, share):
        text, before = share.request.text, share.request.salt
        for position in range(share.start + share.count):
            before = self._texts.setdefault((before, text[position]), len(self._texts))
            slot = share.table[position // self.size], position % self.size
            if position >= share.start:
                self.slots[slot] = before
            assert self.slots.get(slot) == before, f"position {position} is read from a slot of another text"


class Player:
    """A scheduler with its memory. `add` requests, then `step` until none is left."""

    def __init__(self, scheduler):
        self.scheduler, self.pool = scheduler, scheduler.pool
        self.memory = Memory(self.pool.block_size)
        self.added: list[Toy] = []
        self.plans = []

    def add(self, ids, new_tokens=1, salt=""):
        request = Toy(ids, new_tokens, salt)
        self.scheduler.add(request, request.most, salt)
        self.added.append(request)
        return request

    def plan(self):
        before = self.scheduler.running + self.scheduler.waiting
        plan = self.scheduler.plan()
        served = [share.request for share in plan.shares]
        assert served, "an empty step"
        assert plan.tokens <= self.scheduler.token_budget
        assert len(set(map(id, served))) == len(served)
        assert served == [request for request in before if request in served], "served out of order"
        assert not [request for request in plan.preempted if request in served or request in plan.admitted]
        for share in plan.shares:
            assert share.count >= 1
            assert share.start == self.scheduler.progress(share.request).computed
            assert share.chooses == (share.start + share.count == len(share.request.text))
            assert len(share.table) * self.pool.block_size >= share.start + share.count
        self.check()
        return plan

    def step(self):
        plan = self.plan()
        known_before = self.pool.num_known
        for share in plan.shares:
            self.memory.run(share)
            if share.chooses:
                share.request.choose()
        assert self.pool.num_known == known_before, "a block was known before its step had run"
        self.scheduler.settle(plan)
        self.plans.append(plan)
        self.check()
        return plan

    def check(self):
        self.scheduler.check()
        held = {block for request in self.scheduler.running for block in self.scheduler.progress(request).table}
        assert self.pool.num_free == self.pool.num_blocks - len(held), "a block is nobody's and not free"
        started = [request for request in self.added if request in self.scheduler]
        assert [*self.scheduler.running, *self.scheduler.waiting] == started, "somebody overtook"

    def finish(self):
        """Step until all requests have ended; then their answers are right and every block is free."""
        for _ in range(MOST_STEPS):
            if not len(self.scheduler):
                break
            self.step()
        else:
            raise AssertionError("it doesn't come to an end")
        assert self.pool.num_free == self.pool.num_blocks
        for request in self.added:
            if request.finish_reason == "length":
                assert request.token_ids == request.answer()
        return self

    def shares(self, request):
        """All shares that this request has had."""
        return [share for plan in self.plans for share in plan.shares if share.request is request]
