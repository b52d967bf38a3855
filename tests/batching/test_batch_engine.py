"""What a batch promises its users: limits, streams, cancelling, threads, and an engine that isn't disturbed."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref

import pytest
import torch

import llmlesson
from llmlesson import BatchEngine, LessonError, Sampling
from llmlesson.engine import Span


@pytest.fixture(scope="module")
def engine(tiny_pair):
    return tiny_pair("gqa")[0]


def ids(seed, tokens):
    return random.Random(seed).choices(range(3, 131), k=tokens)


def finish(batch, most=2000):
    for _ in range(most):
        if not len(batch):
            break
        batch.step()
        batch.scheduler.check()
    assert not len(batch)
    assert batch.pool.num_free == batch.pool.num_blocks


def test_a_step_says_what_it_did(engine):
    batch = BatchEngine(engine, 8, 4, token_budget=6)
    first, second = batch.add(ids(0, 5), 3), batch.add(ids(1, 4), 2)
    report = batch.step()
    assert list(report.steps) == [first]
    assert [(share.request, share.count) for share in report.plan.shares] == [(first, 5), (second, 1)]
    step = report.steps[first]
    assert (step.index, step.token_id, step.cache_length) == (0, first.token_ids[0], 5)
    assert step.cache_nbytes == 5 * 2 * 3 * 2 * 10 * 4  # K and V, layers, heads, head_dim, float32
    assert 0 < step.seconds <= report.seconds
    assert (report.blocks_in_use, report.tokens_in_cache, report.waiting) == (3, 6, 0)
    assert "2 running, 0 waiting, 3 of 8 blocks" in repr(batch)
    finish(batch)


def test_without_work_a_step_is_empty(engine):
    report = BatchEngine(engine, 8).step()
    assert (report.plan.shares, dict(report.steps), report.blocks_in_use) == ((), {}, 0)


def test_without_a_number_of_blocks_there_is_room_for_the_context(engine):
    assert BatchEngine(engine, max_running=3).pool.num_blocks == 3 * 256 // 16


def test_wrong_settings_and_requests_are_refused(engine):
    for settings in (dict(blocks=0), dict(block_size=0), dict(token_budget=0), dict(max_running=0)):
        with pytest.raises(LessonError):
            BatchEngine(engine, **settings)
    batch = BatchEngine(engine, 4, 4)
    for prompt, settings, message in (
        ([], {}, "empty"),
        ([131], {}, "id 131"),
        ([5], dict(max_new_tokens=0), "max_new_tokens"),
        (ids(0, 10), dict(max_new_tokens=8), r"10 tokens.* 17 in the cache.* 5 blocks of 4; there are 4 \(16 tokens\)"),
        (ids(0, 257), {}, "reads at most 256"),
    ):
        for ask in (batch.add, lambda prompt, **s: batch.generate([prompt], **s), batch.stream):
            with pytest.raises(LessonError, match=message):
                ask(prompt, **settings)
        assert len(batch) == 0
        assert batch.pool.num_free == 4
    with pytest.raises(LessonError, match="one prompt"):
        batch.generate("Hello")
    with pytest.raises(LessonError, match="n is 0"):
        batch.generate([[5]], n=0)
    assert not batch._inboxes


def test_one_refused_prompt_leaves_none_of_its_batch_behind(engine):
    batch = BatchEngine(engine, 4, 4)
    with pytest.raises(LessonError, match="can never run"):
        batch.generate([[5], ids(0, 20)], max_new_tokens=3)
    assert len(batch) == 0
    finish(batch)


def test_generate_is_the_engines_generate_for_many(engine):
    prompts = [ids(seed, 3 + 5 * seed) for seed in range(5)]
    batch = BatchEngine(engine, 64, 4)
    answers = batch.generate(prompts, max_new_tokens=7)
    for prompt, answer in zip(prompts, answers, strict=True):
        alone = engine.generate(prompt, 7)
        assert (answer.token_ids, answer.finish_reason) == (alone.token_ids, alone.finish_reason)
        assert answer.prompt_ids == prompt
        assert len(answer.timings.decode) == len(answer.token_ids) - 1
        assert answer.timings.time_to_first_token > 0
    finish(batch)


def test_n_answers_have_seeds_that_follow_one_another(engine):
    drawn = dict(temperature=1.5, top_k=50)
    batch = BatchEngine(engine, 64, 4)
    prompts = [ids(0, 6), ids(1, 9)]
    answers = batch.generate(prompts, 8, Sampling(seed=3, **drawn), n=3)
    alone = [engine.generate(prompt, 8, Sampling(seed=seed, **drawn)) for prompt in prompts for seed in (3, 4, 5)]
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in alone]
    assert len({tuple(answer.token_ids) for answer in answers}) > 3
    unseeded = batch.generate([ids(0, 6)], 8, Sampling(**drawn), n=4)
    assert len({tuple(answer.token_ids) for answer in unseeded}) > 1


def test_a_draw_survives_preemption(engine):
    drawn = Sampling(temperature=2.0, seed=9, repetition_penalty=1.4)
    batch = BatchEngine(engine, 7, 4)
    requests = [batch.add(ids(seed, 9), 14, drawn) for seed in range(3)]
    finish(batch)
    assert batch.scheduler.counts.preempted
    for seed, request in enumerate(requests):
        assert request.token_ids == engine.generate(ids(seed, 9), 14, drawn).token_ids


def test_the_context_is_a_limit_as_for_the_engine(engine):
    batch = BatchEngine(engine, 32)
    request = batch.add(ids(0, 250), 30)
    finish(batch)
    alone = engine.generate(ids(0, 250), 30)
    assert (request.token_ids, request.finish_reason) == (alone.token_ids, alone.finish_reason)
    assert request.finish_reason in ("cache_full", "eos")


def test_a_full_context_is_full_and_not_stuck(engine, monkeypatch):
    monkeypatch.setattr(engine, "eos_token_ids", frozenset())
    batch = BatchEngine(engine, 32)
    request = batch.add(ids(0, 250), 30)
    finish(batch)
    assert (request.finish_reason, len(request.token_ids)) == ("cache_full", 7)


# Streams


def test_streams_side_by_side_get_their_own_tokens(engine):
    batch = BatchEngine(engine, 64, 4)
    other = batch.add(ids(9, 4), 5)
    streams = [batch.stream(ids(seed, 5), 6) for seed in range(3)]
    rounds = list(zip(*streams, strict=True))
    for seed in range(3):
        steps = [steps[seed] for steps in rounds]
        assert [step.token_id for step in steps] == engine.generate(ids(seed, 5), 6).token_ids
        assert [step.index for step in steps] == list(range(len(steps)))
        assert [step.finish_reason for step in steps][:-1] == [None] * (len(steps) - 1)
    assert other.finish_reason
    for stream in streams:
        assert list(stream) == []
    assert not batch._inboxes
    finish(batch)


def test_who_closes_a_stream_cancels_its_request(engine):
    batch = BatchEngine(engine, 64, 4, token_budget=6)
    for steps in range(4):  # not begun, amid its prompt, at its answer
        other = batch.add(ids(9, 4), 20)
        stream = batch.stream(ids(1, 15), 20)
        for _ in range(steps):
            batch.step()
        [request] = [r for r in [*batch.scheduler.running, *batch.scheduler.waiting] if r is not other]
        stream.close()
        assert request.finish_reason == "cancelled"
        assert request not in batch.scheduler
        batch.scheduler.check()
        finish(batch)
        assert other.finish_reason != "cancelled"
    assert not batch._inboxes


def test_a_stream_that_nobody_keeps_is_cancelled(engine):
    batch = BatchEngine(engine, 64, 4)
    for _ in batch.stream(ids(1, 5), 20):
        break
    batch.stream(ids(2, 5), 20)
    gc.collect()
    assert len(batch) == 0
    finish(batch)


def test_a_cancelled_request_ends_and_takes_no_token(engine):
    batch = BatchEngine(engine, 64, 4)
    requests = [batch.add(ids(seed, 6), 8) for seed in range(3)]
    batch.step()
    batch.cancel(requests[1])
    batch.cancel(requests[1])
    assert (requests[1].finish_reason, len(requests[1].token_ids)) == ("cancelled", 1)
    finish(batch)
    assert len(requests[1].token_ids) == 1
    batch.cancel(requests[0])
    assert requests[0].finish_reason != "cancelled"  # it had ended
    for seed in (0, 2):
        assert requests[seed].token_ids == engine.generate(ids(seed, 6), 8).token_ids


def test_cancelled_while_the_model_runs(engine, monkeypatch):
    batch = BatchEngine(engine, 64, 4)
    requests = [batch.add(ids(seed, 6), 8) for seed in range(3)]
    forward = engine.model.forward

    def cancels(*args):
        batch.cancel(requests[1])
        return forward(*args)

    monkeypatch.setattr(engine.model, "forward", cancels)
    report = batch.step()
    assert requests[1] not in report.steps
    assert (requests[1].finish_reason, requests[1].token_ids) == ("cancelled", [])
    batch.scheduler.check()
    finish(batch)
    assert requests[2].token_ids == engine.generate(ids(2, 6), 8).token_ids


def test_after_a_failed_step_nothing_is_lost(engine, monkeypatch):
    batch = BatchEngine(engine, 12, 4, token_budget=9)
    requests = [batch.add(ids(seed, 6), 12) for seed in range(4)]
    forward, calls = engine.model.forward, []

    def fails_sometimes(*args):
        calls.append(args)
        x = forward(*args)
        if len(calls) % 3 == 2:
            raise KeyboardInterrupt
        return x

    monkeypatch.setattr(engine.model, "forward", fails_sometimes)
    failed = 0
    while len(batch):
        try:
            batch.step()
        except KeyboardInterrupt:
            failed += 1
        batch.scheduler.check()
    assert failed > 3
    monkeypatch.undo()
    for seed, request in enumerate(requests):
        assert request.token_ids == engine.generate(ids(seed, 6), 12).token_ids


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [None, Sampling(temperature=1.0, seed=0)], ids=["greedy", "sampled"])
def test_scores_that_are_no_numbers_end_their_request_alone(engine, monkeypatch, damage, sampling):
    alone = [engine.generate(ids(seed, 6), 8, sampling).token_ids for seed in range(3)]
    logits = engine.model.logits

    def damaged(x):
        scores = logits(x)
        if len(scores) == 3:  # all three choose a token
            scores[1, 7] = damage
        return scores

    batch = BatchEngine(engine, 24, 4)
    monkeypatch.setattr(engine.model, "logits", damaged)
    requests = [batch.add(ids(seed, 6), 8, sampling) for seed in range(3)]
    report = batch.step()
    assert report.failed == (requests[1],)
    assert list(report.steps) == [requests[0], requests[2]]
    assert (requests[1].finish_reason, requests[1].token_ids) == ("error", [])
    finish(batch)
    assert [request.token_ids for request in requests] == [alone[0], [], alone[2]]
    # Nothing that was computed for it is found by a later request with the same prompt.
    monkeypatch.undo()
    assert batch.generate([ids(1, 6)], 8, sampling)[0].token_ids == alone[1]


def test_a_stream_of_scores_that_are_no_numbers_raises(engine, monkeypatch):
    batch = BatchEngine(engine, 24, 4)
    monkeypatch.setattr(engine.model, "logits", lambda x: torch.full((len(x), 131), float("nan")))
    with pytest.raises(LessonError, match="NaN or infinite"):
        list(batch.stream(ids(0, 6), 8))
    assert batch.generate([ids(0, 6)], 8)[0].finish_reason == "error"
    finish(batch)


# Threads


def test_others_may_add_and_cancel_while_one_makes_the_steps(engine):
    batch = BatchEngine(engine, 24, 4, token_budget=16)
    requests, cancelled, trouble = [], [], []
    added = threading.Event()

    def user(number):
        chance = random.Random(number)
        try:
            for turn in range(12):
                request = batch.add(ids(100 * number + turn, chance.randrange(1, 12)), chance.randrange(1, 8))
                requests.append(request)
                if chance.random() < 0.3:
                    batch.cancel(request)
                    cancelled.append(request)
        except BaseException as error:
            trouble.append(error)

    users = [threading.Thread(target=user, args=(number,)) for number in range(6)]
    for thread in users:
        thread.start()
    joiner = threading.Thread(target=lambda: ([thread.join() for thread in users], added.set()))
    joiner.start()
    while not added.is_set() or len(batch):
        batch.step()
    joiner.join()
    assert not trouble
    assert len(requests) == 72
    finish(batch)
    for request in requests:
        assert request.finish_reason is not None
        if request.finish_reason != "cancelled":
            alone = engine.generate(request.ids, request.max_new_tokens)
            assert (request.token_ids, request.finish_reason) == (alone.token_ids, alone.finish_reason)
        else:
            assert request in cancelled


def test_a_second_thread_that_makes_steps_is_refused(engine, monkeypatch):
    batch = BatchEngine(engine, 24, 4)
    request = batch.add(ids(0, 6), 5)
    forward, seen = engine.model.forward, []

    def another_steps(*args):
        def step():
            with pytest.raises(LessonError, match="Another thread"):
                batch.step()
            seen.append(True)

        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
        return forward(*args)

    monkeypatch.setattr(engine.model, "forward", another_steps)
    batch.step()
    monkeypatch.undo()
    assert seen == [True]
    finish(batch)
    assert request.token_ids == engine.generate(ids(0, 6), 5).token_ids


# Shared beginnings


def test_a_shared_beginning_is_read_once_and_salts_separate(engine):
    head = ids(5, 24)
    batch = BatchEngine(engine, 64, 4)
    read = {}
    for number, salt in enumerate(("", "", "a", "a", "b")):
        prompt = [*head, *ids(number, 3)]
        request = batch.add(prompt, 4, salt=salt)
        read[number] = batch.step().plan.tokens
        finish(batch)
        assert request.token_ids == engine.generate(prompt, 4).token_ids
    assert list(read.values()) == [27, 3, 27, 3, 27]


def test_the_next_turn_of_a_chat_finds_prompt_and_answer(engine):
    batch = BatchEngine(engine, 64, 4)
    first = batch.add(ids(5, 10), 8)
    finish(batch)
    follow_up = [*first.tokens, *ids(6, 5)]
    second = batch.add(follow_up, 4)
    assert batch.step().plan.tokens == len(follow_up) - (len(first.tokens) - 1) // 4 * 4
    finish(batch)
    assert second.token_ids == engine.generate(follow_up, 4).token_ids


def test_new_weights_forget_the_cache(engine):
    batch = BatchEngine(engine, 64, 4)
    prompt = ids(5, 24)
    expected = batch.generate([prompt], 4)[0].token_ids
    batch.cache._storage.fill_(1.0)  # as if computed with other weights
    batch.cache._storage[:, :, :, -1] = 0
    assert batch.generate([prompt], 4)[0].token_ids != expected
    batch.pool.forget()
    assert batch.generate([prompt], 4)[0].token_ids == expected


# How equal is equal?


def scores(engine, cache, spans, tokens):
    with torch.no_grad():
        x = engine.model.forward(torch.tensor([tokens]), cache.step(spans))[0]
        return engine.model.logits(x)


def filled(engine, rows, size=4, tokens=21):
    """A paged cache with `rows` texts of `tokens` tokens each, read one by one."""
    room = -(-(tokens + 1) // size)
    cache = engine.new_paged_cache(rows * room, size)
    tables = [range(row * room, (row + 1) * room) for row in range(rows)]
    for row, table in enumerate(tables):
        scores(engine, cache, [Span(table, 0, tokens)], ids(row, tokens))
    return cache, [Span(table, tokens, 1) for table in tables]


def test_the_same_batch_twice_is_equal_to_the_last_bit(engine):
    cache, spans = filled(engine, 9)
    tokens = list(range(9))
    assert torch.equal(scores(engine, cache, spans, tokens), scores(engine, cache, spans, tokens))


def test_alone_the_paged_step_is_the_engines_to_the_last_bit(tiny_pair):
    for name in ("gqa", "mha", "qwen3"):
        engine = tiny_pair(name)[0]
        cache, spans = filled(engine, 1)
        contiguous = engine.new_cache(22)
        engine.read(ids(0, 21), contiguous)
        assert torch.equal(scores(engine, cache, spans, [7])[0], engine.read([7], contiguous))


def test_neighbours_move_float32_scores_by_rounding_only(engine):
    cache, spans = filled(engine, 40)
    tokens = [5] * 40
    alone = scores(engine, cache, spans[:1], tokens[:1])[0]
    for rows in (2, 3, 4, 17, 40):
        assert (scores(engine, cache, spans[:rows], tokens[:rows])[0] - alone).abs().max() < 1e-3


def test_a_hit_is_as_good_as_a_miss_and_a_wrong_block_is_not(engine):
    text, table = [*ids(0, 21), 9, 8, 7], list(range(6))
    cache = engine.new_paged_cache(6, 4)
    miss = scores(engine, cache, [Span(table, 0, 24)], text)[-1]
    hit = scores(engine, cache, [Span(table, 20, 4)], text[20:])[-1]
    assert (hit - miss).abs().max() < 1e-3
    wrong = scores(engine, cache, [Span([table[1], *table[1:]], 20, 4)], text[20:])[-1]
    assert (wrong - miss).abs().max() > 0.05


# Many


def test_a_thousand_requests_in_the_queue(engine):
    chance = random.Random(8)
    batch = BatchEngine(engine, 60, 4, token_budget=128, max_running=24)
    requests = [batch.add(ids(n % 50, 1 + n % 9), 1 + n % 3) for n in range(1000)]
    ended = []
    while len(batch):
        report = batch.step()
        ended += [request for request, step in report.steps.items() if step.finish_reason]
        if chance.random() < 0.3:
            batch.cancel(chance.choice(requests))
    batch.scheduler.check()
    assert batch.pool.num_free == 60
    assert all(request.finish_reason for request in requests)
    cancelled = [request for request in requests if request.finish_reason == "cancelled"]
    assert len(ended) + len(cancelled) == 1000
    assert cancelled
    # In the order of arrival, but for answers of different lengths that run side by side.
    places = {request: place for place, request in enumerate(requests)}
    assert all(abs(places[request] - n) < 24 + len(cancelled) for n, request in enumerate(ended))
    for request in requests[::40]:
        if request.finish_reason != "cancelled":
            assert request.token_ids == engine.generate(request.ids, request.max_new_tokens).token_ids


def test_nothing_of_an_ended_request_is_kept(engine):
    batch = BatchEngine(engine, 60, 4)
    before = None
    for _ in range(3):
        watched = [weakref.ref(batch.add(ids(n, 6), 3)) for n in range(20)]
        finish(batch)
        gc.collect()
        assert not any(reference() for reference in watched)
        sizes = [len(vars(batch.scheduler)[name]) for name in ("_all", "_running", "_waiting")]
        assert sizes == [0, 0, 0]
        before = before or batch.cache.allocated_nbytes
        assert batch.cache.allocated_nbytes == before


def test_planning_and_simulating_need_no_torch():
    code = "import llmlesson.batching.scheduler, llmlesson.batching.trace, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


# The default model


def test_answers_of_the_default_model(real):
    head = real.tokenizer.encode("You are a helpful assistant. Answer in one short sentence, and be kind. ")
    prompts = [[*head, *real.tokenizer.encode(text)] for text in ("What is a cache?", "What is a cache?", "Why?")]
    prompts += [[1], real.tokenizer.encode("The capital of France is")]
    batch = BatchEngine(real, 12, 4 * 4, token_budget=20)
    requests = [batch.add(prompt, 8) for prompt in prompts]
    requests.append(batch.add("Count from one to nine.", 8, Sampling(temperature=0.9, seed=4)))
    while len(batch):
        batch.step()
        batch.scheduler.check()
    for request, prompt in zip(requests, prompts, strict=False):
        assert request.token_ids == real.generate(prompt, 8).token_ids
    drawn = real.generate("Count from one to nine.", 8, Sampling(temperature=0.9, seed=4))
    assert (requests[-1].token_ids, requests[-1].text) == (drawn.token_ids, drawn.text)


def test_stop_strings_end_each_answer_by_itself(real):
    alone = real.generate("Count: one, two, three,", 12, chat=False)
    word = alone.text.split()[2]
    batch = BatchEngine(real, 20)
    streams = [batch.stream("Count: one, two, three,", 12, stop=stop, chat=False) for stop in (word, None)]
    first, second = list(streams[0]), list(streams[1])
    assert first[-1].finish_reason == "stop"
    assert "".join(step.text for step in first) == alone.text[: alone.text.index(word)]
    assert "".join(step.text for step in second) == alone.text


def test_int8_scores_do_not_depend_on_who_else_is_there():
    engine = llmlesson.load(dtype="int8", device="cpu")
    cache, spans = filled(engine, 20, tokens=7)
    tokens = [5] * 20
    alone = scores(engine, cache, spans[:1], tokens[:1])[0]
    for rows in (2, 16, 17, 20):
        assert torch.equal(scores(engine, cache, spans[:rows], tokens[:rows])[0], alone)
