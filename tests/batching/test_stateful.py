"""Requests added, stepped and cancelled at random, against the plain model in `play.py` of what must be true."""

from __future__ import annotations

from batching.play import Player
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from llmlesson.batching.block_pool import BlockPool
from llmlesson.batching.scheduler import Scheduler

# Few different tokens and beginnings, so that texts meet.
HEADS = [[], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9]]


class Batch(RuleBasedStateMachine):
    @initialize(
        blocks=st.integers(5, 24),
        size=st.sampled_from([1, 2, 4]),
        budget=st.sampled_from([1, 3, 8, 64]),
        running=st.integers(1, 6),
        share=st.booleans(),
        static=st.booleans(),
    )
    def start(self, blocks, size, budget, running, share, static):
        self.play = Player(Scheduler(BlockPool(blocks, size), budget, running, share, static))

    @rule(
        head=st.sampled_from(HEADS),
        tail=st.lists(st.integers(1, 3), min_size=1, max_size=9),
        new_tokens=st.integers(1, 9),
        salt=st.sampled_from(["", "a"]),
    )
    def add(self, head, tail, new_tokens, salt):
        room = self.play.pool.num_blocks * self.play.pool.block_size
        ids = [*head, *tail][-room:]
        self.play.add(ids, min(new_tokens, room - len(ids) + 1), salt)

    @precondition(lambda self: len(self.play.scheduler))
    @rule(steps=st.integers(1, 5))
    def step(self, steps):
        for _ in range(steps):
            if len(self.play.scheduler):
                self.play.step()

    @precondition(lambda self: len(self.play.scheduler))
    @rule()
    def step_that_fails(self):
        for share in self.play.plan().shares[:1]:
            self.play.memory.run(share)

    @precondition(lambda self: len(self.play.scheduler))
    @rule(data=st.data(), amid_a_step=st.booleans())
    def cancel(self, data, amid_a_step):
        plan = self.play.plan() if amid_a_step else None
        request = data.draw(st.sampled_from([r for r in self.play.added if r in self.play.scheduler]))
        self.play.scheduler.cancel(request)
        request.finish_reason = "cancelled"
        if plan is not None:
            for share in plan.shares:
                self.play.memory.run(share)
                if share.chooses and share.request is not request:
                    share.request.choose()
            self.play.scheduler.settle(plan)
        self.play.check()

    @rule()
    def forget(self):
        self.play.pool.forget()
        assert not self.play.pool.num_known

    def teardown(self):
        if hasattr(self, "play"):
            self.play.finish()


TestBatch = Batch.TestCase
TestBatch.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
