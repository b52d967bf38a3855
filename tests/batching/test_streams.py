"""Requests and streams of a real batch, opened, read, cancelled and closed at random: answers are the engine's."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from llmlesson import BatchEngine, Sampling

DRAWN = Sampling(temperature=1.3, seed=2)


def test_users_come_and_go(tiny_pair):
    engine = tiny_pair("gqa")[0]
    answers = {}

    def alone(ids, new_tokens, sampling):
        key = tuple(ids), new_tokens, sampling
        if key not in answers:
            answers[key] = engine.generate(ids, new_tokens, sampling).token_ids
        return answers[key]

    class Users(RuleBasedStateMachine):
        requests, streams = Bundle("requests"), Bundle("streams")

        @initialize(
            blocks=st.integers(9, 20),
            budget=st.sampled_from([1, 5, 64]),
            share=st.booleans(),
            running=st.integers(1, 4),
        )
        def start(self, blocks, budget, share, running):
            self.batch = BatchEngine(engine, blocks, 4, share, budget, running)
            self.added = []

        @rule(
            target=requests,
            head=st.sampled_from([[], [5, 6, 7, 8, 9, 10, 11, 12]]),
            tail=st.lists(st.integers(3, 5), min_size=1, max_size=6),
            new_tokens=st.integers(1, 8),
            sampling=st.sampled_from([None, DRAWN]),
        )
        def add(self, head, tail, new_tokens, sampling):
            request = self.batch.add([*head, *tail], new_tokens, sampling)
            self.added.append((request, alone(request.ids, new_tokens, sampling)))
            return request

        @rule(target=streams, tail=st.lists(st.integers(3, 9), min_size=1, max_size=9), new_tokens=st.integers(1, 8))
        def open_stream(self, tail, new_tokens):
            return self.batch.stream(tail, new_tokens), [], alone(tail, new_tokens, None)

        @rule(stream=streams)
        def read(self, stream):
            steps, seen, expected = stream
            seen += [step.token_id for step in [next(steps, None)] if step is not None]
            assert seen == expected[: len(seen)]

        @rule(stream=streams)
        def read_to_the_end(self, stream):
            steps, seen, expected = stream
            seen += [step.token_id for step in steps]
            assert seen == expected[: len(seen)]

        @rule(stream=streams)
        def close(self, stream):
            stream[0].close()
            self.batch.scheduler.check()

        @rule(request=requests)
        def cancel(self, request):
            self.batch.cancel(request)
            assert request.finish_reason is not None
            self.batch.scheduler.check()

        @rule()
        def step(self):
            report = self.batch.step()
            assert bool(report.plan.shares) == bool(report.plan.tokens)
            self.batch.scheduler.check()

        def teardown(self):
            if not hasattr(self, "batch"):
                return
            while len(self.batch):
                self.batch.step()
                self.batch.scheduler.check()
            assert self.batch.pool.num_free == self.batch.pool.num_blocks
            for request, expected in self.added:
                assert request.token_ids == expected[: len(request.token_ids)]
                assert request.finish_reason == "cancelled" or request.token_ids == expected

    run_state_machine_as_test(Users, settings=settings(max_examples=8, stateful_step_count=25, deadline=None))
