"""The scheduler, without a model. No test takes a fixture: see test_mutants.py.

Most of these are faults that other projects have had; `play.py` says what is checked in every step of each.
"""

from __future__ import annotations

import itertools
import random

import pytest
from batching.play import Player, Toy

from llmlesson import LessonError
from llmlesson.batching import scheduler as scheduler_module
from llmlesson.batching.block_pool import BlockPool
from llmlesson.batching.scheduler import Scheduler

HEAD = list(range(100, 112))  # a beginning that several prompts share: 3 blocks of 4


def player(blocks=64, size=4, budget=256, running=8, share=True, static=False):
    return Player(Scheduler(BlockPool(blocks, size), budget, running, share, static))


def text(seed, tokens):
    return random.Random(seed).choices(range(50), k=tokens)


# What a step is made of


def test_a_prompt_is_read_whole_then_one_token_a_step():
    play = player()
    request = play.add(text(0, 10), 4)
    play.finish()
    assert [(s.start, s.count, s.chooses) for s in play.shares(request)] == [
        (0, 10, True),
        (10, 1, True),
        (11, 1, True),
        (12, 1, True),
    ]


def test_running_answers_come_before_new_prompts_and_the_budget_holds():
    play = player(budget=6)
    first = play.add(text(0, 5), 6)
    play.step()
    second = play.add(text(1, 9), 2)
    plans = [play.step() for _ in range(3)]
    assert [[(s.request is first, s.count) for s in plan.shares] for plan in plans] == [
        [(True, 1), (False, 5)],
        [(True, 1), (False, 4)],
        [(True, 1), (False, 1)],
    ]
    assert second.finish_reason == "length"


def test_inner_chunks_choose_nothing():
    for budget in (1, 2, 3, 7):
        play = player(budget=budget)
        request = play.add(text(0, 7), 3)
        play.finish()
        shares = play.shares(request)
        assert sum(s.chooses for s in shares) == 3
        assert not any(s.chooses for s in shares[: -(-7 // budget) - 1])


def test_a_budget_of_one_token_serves_all_of_them_in_turn():
    play = player(budget=1)
    requests = [play.add(text(seed, 3 + seed), 3) for seed in range(4)]
    play.finish()
    last = [max(i for i, plan in enumerate(play.plans) if plan.shares[0].request is r) for r in requests]
    assert last == sorted(last)


def test_at_most_max_running_run():
    play = player(running=3)
    for seed in range(7):
        play.add(text(seed, 5), 3)
    play.step()
    assert (len(play.scheduler.running), len(play.scheduler.waiting)) == (3, 4)
    play.finish()


def test_a_static_batch_admits_nobody_until_all_have_ended():
    play = player(running=2, static=True)
    lengths = [2, 6, 3, 3]
    requests = [play.add(text(seed, 5), new) for seed, new in enumerate(lengths)]
    play.finish()
    started = [next(i for i, plan in enumerate(play.plans) if r in plan.admitted) for r in requests]
    assert started == [0, 0, 6, 6]


def test_a_place_that_is_left_is_filled_in_the_next_step():
    play = player(running=2)
    lengths = [2, 6, 3]
    requests = [play.add(text(seed, 5), new) for seed, new in enumerate(lengths)]
    play.finish()
    assert [next(i for i, plan in enumerate(play.plans) if r in plan.admitted) for r in requests] == [0, 0, 2]


# Blocks


def test_a_block_is_taken_exactly_when_the_first_position_in_it_is_written():
    for size, tokens in itertools.product((1, 2, 3, 4), range(1, 10)):
        play = player(size=size)
        request = play.add(text(0, tokens), 10)
        while len(play.scheduler):
            play.step()
            if request in play.scheduler:
                held = play.pool.num_blocks - play.pool.num_free
                assert held == -(-play.scheduler.progress(request).computed // size)


def test_tables_never_change_but_at_their_end():
    play = player(blocks=9)
    requests = [play.add(text(0, 8), 9), play.add(text(0, 8), 9)]
    play.finish()
    for request in requests:
        starts = [i for i, plan in enumerate(play.plans) if request in plan.admitted]
        for index in range(1, len(play.plans)):
            if index in starts:
                continue
            now, before = ([s.table for s in play.plans[i].shares if s.request is request] for i in (index, index - 1))
            if now and before:
                assert now[0][: len(before[0])] == before[0]


def test_what_can_never_fit_is_refused_with_the_numbers():
    play = player(blocks=4)
    with pytest.raises(LessonError, match=r"prompt has 10 tokens.* 17 in the cache.* 5 blocks of 4; there are 4"):
        play.add(text(0, 10), 8)
    with pytest.raises(LessonError):
        play.scheduler.add(Toy(text(0, 17)), 1)  # also where the caller's own number is too small
    assert len(play.scheduler) == 0
    play.add(text(0, 10), 7)
    play.finish()


def test_wrong_requests_and_settings_are_refused():
    play = player()
    with pytest.raises(LessonError, match="empty"):
        play.add([])
    request = play.add([1, 2])
    with pytest.raises(LessonError, match="added before"):
        play.scheduler.add(request, 2)
    play.finish()
    with pytest.raises(LessonError, match="has ended"):
        play.scheduler.add(request, 2)
    for settings in (dict(budget=0), dict(running=0)):
        with pytest.raises(LessonError, match="at least 1"):
            player(**settings)


def test_admission_looks_at_the_whole_prompt_and_leaves_a_reserve():
    play = player(blocks=9, budget=4)
    play.add(text(0, 8), 12)  # 2 blocks now, a third with the next step
    play.step()
    play.step()
    newcomer = play.add(text(1, 20))  # 5 blocks, of 6 that are then free
    play.step()
    assert newcomer in play.scheduler.running
    play.finish()
    assert play.scheduler.counts.preempted == 0

    play = player(blocks=8, budget=4)
    play.add(text(0, 8), 12)
    play.step()
    play.step()
    newcomer = play.add(text(1, 20))  # 5 blocks, of 5 that are then free: the next growth would throw it out again
    play.step()
    assert newcomer in play.scheduler.waiting
    play.finish()
    assert play.scheduler.counts.preempted == 0


def test_alone_a_request_may_use_the_whole_pool():
    play = player(blocks=4)
    play.add(text(0, 16))
    play.add(text(1, 9), 8)
    play.finish()
    assert play.scheduler.counts.preempted == 0


def test_no_reserve_is_left_for_those_that_can_not_grow():
    play = player(blocks=4, size=16)
    for seed in range(4):
        play.add(text(seed, 8), 9)  # its one block is enough to the end
    play.step()
    assert len(play.scheduler.running) == 4
    play.finish()


def test_where_others_hold_all_blocks_it_raises_instead_of_an_empty_step():
    play = player(blocks=4)
    theirs = play.pool.take(2)
    play.add(text(0, 12))
    with pytest.raises(LessonError, match="2 of 4 blocks are free"):
        play.scheduler.plan()
    play.pool.release(theirs)
    play.finish()


# Preemption


def test_the_youngest_gives_up_its_blocks_and_goes_on_where_it_was():
    play = player(blocks=6, share=False)
    old = play.add(text(0, 7), 12)
    young = play.add(text(1, 7), 12)
    while not play.scheduler.counts.preempted:
        plan = play.step()
    assert plan.preempted == (young,)
    assert [s.request for s in plan.shares] == [old]
    chosen = len(young.token_ids)
    assert chosen >= 1
    play.finish()
    again = play.shares(young)
    restart = next(i for i, s in enumerate(again) if i and s.start == 0)
    # Prompt and answer so far are read again from position 0 on, and then one more token is chosen, none twice.
    assert (again[restart].count, again[restart].chooses) == (7 + chosen, True)
    assert sum(s.chooses for s in again) == 12


def test_in_chunks_no_token_is_chosen_before_all_is_read_again():
    play = player(blocks=6, share=False, budget=3)
    requests = [play.add(text(seed, 7), 12) for seed in range(2)]
    play.finish()
    assert play.scheduler.counts.preempted
    for request in requests:
        assert sum(s.chooses for s in play.shares(request)) == 12


def test_a_pool_for_one_and_a_bit_serves_all_in_order_and_within_bounds():
    for share, size, budget, running in itertools.product((False, True), (1, 2, 4), (1, 3, 64), (2, 5)):
        for spare in (0, 1, 2):
            play = player(24 // size + spare, size, budget, running, share)
            lengths = [(7, 5), (16, 9), (1, 12), (9, 1), (12, 13), (12, 13), (3, 4)]
            requests = [play.add(text(n, n), new) for n, new in lengths]
            ended = []
            while len(play.scheduler):
                play.step()
                ended += [r for r in requests if r.finish_reason and r not in ended]
                assert len(play.plans) < 1500
            play.finish()


def test_what_starts_again_counts_what_it_finds_first():
    play = player(blocks=7)
    old = play.add(text(0, 8), 13)
    young = play.add(text(1, 8), 8)
    while not play.scheduler.counts.preempted:
        play.step()
    play.finish()
    again = [s for s in play.shares(young) if s.count > 1][1]
    assert again.start > 0, "its own blocks were known and free, and some of them were still there"
    assert again.start % 4 == 0
    counts = play.scheduler.counts
    assert counts.found_again_tokens == again.start
    assert counts.resumed_tokens == again.start + again.count
    assert (counts.prompt_tokens, counts.found_tokens) == (16, 0)
    assert old.token_ids == old.answer()


def test_what_starts_again_finds_its_answer_too():
    play = player(blocks=12, size=1)
    old = play.add(text(0, 4), 8)
    play.add(text(1, 1), 6)
    while not play.scheduler.counts.preempted:
        play.step()
    play.scheduler.cancel(old)
    play.finish()
    assert play.scheduler.counts.found_again_tokens > 1


def test_victims_of_a_step_are_not_admitted_in_it():
    play = player(blocks=10, size=1, share=False)
    play.add(text(0, 3), 8)
    play.add(text(1, 2), 5)
    play.add(text(2, 1), 3)
    play.finish()
    with_victims = [plan for plan in play.plans if plan.preempted]
    assert with_victims
    assert not any(plan.admitted for plan in with_victims)


def test_a_plan_whose_step_failed_is_made_again():
    play = player(budget=6)
    request = play.add(text(0, 10), 3)
    failed = play.plan()
    again = play.plan()
    assert failed.shares == again.shares
    play.step()
    with pytest.raises(LessonError, match="out of date"):
        play.scheduler.settle(failed)
    play.finish()
    assert sum(s.count for s in play.shares(request)) == 12


def test_a_step_that_chose_nothing_is_not_settled():
    play = player()
    play.add(text(0, 4), 3)
    plan = play.plan()
    with pytest.raises(LessonError, match="have not grown"):
        play.scheduler.settle(plan)
    assert play.scheduler.progress(play.added[0]).computed == 0
    assert play.pool.num_known == 0


# Shared beginnings


def test_the_last_token_is_read_also_where_all_of_the_prompt_is_known():
    for size, more in itertools.product((1, 2, 4), (-1, 0, 1)):
        play = player(size=size)
        ids = text(0, 3 * size + more) or [1]
        for _ in range(2):
            request = play.add(ids, 3)
            play.finish()
            assert play.shares(request)[0].count >= 1
        assert play.shares(request)[0].start == (len(ids) - 1) // size * size


def test_after_a_full_hit_the_chain_of_keys_goes_on():
    play = player()
    play.add(HEAD)
    play.finish()
    play.add(HEAD)
    play.finish()
    longer = play.add([*HEAD, *text(0, 8)])
    play.finish()
    assert play.shares(longer)[0].start == 12
    longest = play.add([*longer.ids, 1, 2])
    play.finish()
    assert play.shares(longest)[0].start == 20


def test_an_answer_can_be_the_beginning_of_the_next_prompt():
    play = player()
    turn = play.add(text(0, 6), 7)
    play.finish()
    follow_up = play.add([*turn.text, 3, 4, 5])
    play.finish()
    assert play.shares(follow_up)[0].start == 12  # of 13 known tokens; the last was never read


def test_sharing_can_be_switched_off():
    play = player(share=False)
    for _ in range(2):
        request = play.add(HEAD, 4)
        play.finish()
    assert play.shares(request)[0].start == 0
    assert play.pool.num_known == 0


def test_salts_separate():
    play = player()
    play.add([*HEAD, 1], salt="a")
    play.finish()
    other, same = play.add([*HEAD, 2], salt="b"), play.add([*HEAD, 2], salt="a")
    play.finish()
    assert [play.shares(r)[0].start for r in (other, same)] == [0, 12]


def test_a_salt_is_not_a_token_nor_the_epoch():
    play = player(size=1)
    for salt in ("", "0", "1", " ", "0 ", "1 "):
        request = play.add([5, 6, 7], salt=salt)
        play.finish()
        assert play.shares(request)[0].start == 0
    play.pool.forget()
    request = play.add([5, 6, 7], salt="")
    play.finish()
    assert play.shares(request)[0].start == 0


def test_after_forget_nothing_computed_before_is_used():
    play = player()
    play.add(HEAD)
    play.finish()
    runs_on = play.add([*HEAD, 1], 9)
    play.step()
    play.pool.forget()
    play.memory.slots.clear()  # other weights: what was computed with the old ones is wrong
    while len(play.scheduler):  # it goes on with what it has, and what it fills now can't be found either
        plan = play.scheduler.plan()
        for share in plan.shares:
            share.request.choose()
        play.scheduler.settle(plan)
    for ids, start in ((HEAD, 0), ([*HEAD, 1, *runs_on.token_ids], 12)):  # the second finds the first, and no more
        after = play.add(ids)
        play.finish()
        assert play.shares(after)[0].start == start


def test_a_block_is_known_only_after_the_step_that_filled_it():
    play = player()
    play.add([*HEAD, 1])
    play.plan()
    assert play.pool.num_known == 0
    second = play.add([*HEAD, 2])
    plan = play.step()
    assert [s.start for s in plan.shares if s.request is second] == [0]
    third = play.add([*HEAD, 3])
    play.finish()
    assert play.shares(third)[0].start == 12


def test_cancelled_between_plan_and_settle_nothing_of_it_becomes_known():
    play = player()
    request = play.add([*HEAD, 1])
    plan = play.plan()
    play.scheduler.cancel(request)
    play.scheduler.settle(plan)
    play.check()
    assert play.pool.num_known == 0
    assert play.pool.num_free == play.pool.num_blocks


def test_cancelled_amid_its_prompt_only_full_computed_blocks_are_known():
    play = player(budget=6)
    request = play.add(text(0, 20))
    play.step()
    assert play.pool.num_known == 1
    play.scheduler.cancel(request)
    play.check()
    assert play.pool.num_known == 1
    again = play.add(text(0, 20))
    play.finish()
    assert play.shares(again)[0].start == 4


def test_a_found_block_that_nobody_holds_costs_room():
    play = player(blocks=7)
    play.add(HEAD)
    play.finish()
    holder = play.add(text(0, 11), 2)
    play.step()
    # 4 blocks are free, 3 of them HEAD's. HEAD and 5 more tokens take these and 2 more, and 1 stays in reserve.
    newcomer = play.add([*HEAD, *text(1, 5)])
    plan = play.step()
    assert newcomer in play.scheduler.waiting
    assert plan.admitted == ()
    assert holder.finish_reason
    play.finish()
    assert play.shares(newcomer)[0].start == 12


def test_a_found_block_that_others_hold_costs_none():
    play = player(blocks=8)
    play.add(HEAD, 4)
    play.step()  # holds 3 blocks, 5 are free
    newcomers = [play.add([*HEAD, seed], 1) for seed in range(2)]
    plan = play.step()
    assert plan.admitted == tuple(newcomers)
    play.finish()


def test_two_equal_prompts_in_one_step_are_two_copies_of_which_one_is_found():
    play = player()
    twins = [play.add(HEAD, 3), play.add(HEAD, 3)]
    plan = play.step()
    tables = [s.table for s in plan.shares]
    assert not set(tables[0]) & set(tables[1])
    assert play.pool.num_known == 3
    third = play.add([*HEAD, 1])
    plan = play.step()
    assert [s.table[:3] for s in plan.shares if s.request is third] == [tables[0][:3]]
    play.finish()
    assert [r.token_ids for r in twins] == [twins[0].answer()] * 2
    assert play.pool.num_known >= 3


def test_a_text_found_and_never_taken_survives_others():
    play = player(blocks=8)
    play.add(HEAD)
    play.finish()
    for seed in range(6):
        play.add([*HEAD, *text(seed, 6)], 3)
        play.finish()
        assert play.shares(play.added[-1])[0].start == 12


def test_equal_keys_are_taken_for_equal_texts():
    # Tokens are not compared: the pool relies on SHA-256. With keys that collide, wrong blocks are used, and `play`
    # finds out, as it must find any other way to a wrong block.
    before = scheduler_module.next_key
    scheduler_module.next_key = lambda before, ids: b"the same for all"
    try:
        play = player()
        play.add(text(0, 8))
        play.finish()
        play.add(text(1, 9))
        with pytest.raises(AssertionError, match="another text"):
            play.finish()
    finally:
        scheduler_module.next_key = before


# Cancelling and order


def test_cancelled_in_any_state_its_blocks_come_back_once():
    for steps in range(12):
        for who in range(4):
            play = player(blocks=8, budget=5)
            requests = [play.add(text(seed, 9), 8) for seed in range(4)]
            for _ in range(steps):
                play.step()
            play.scheduler.cancel(requests[who])
            play.check()
            play.scheduler.cancel(requests[who])
            play.check()
            assert requests[who] not in play.scheduler
            play.finish()


def test_a_request_that_has_ended_can_be_cancelled_again():
    play = player()
    request = play.add(text(0, 5))
    play.finish()
    free = play.pool.free_blocks()
    play.scheduler.cancel(request)
    assert play.pool.free_blocks() == free


def test_nobody_overtakes_a_long_prompt():
    play = player(blocks=16)
    for seed in range(8):
        play.add(text(seed, 6), 6)
    ahead = len(play.added)
    long = play.add(text(9, 60), 2)
    for seed in range(200):  # a steady stream of short ones behind it
        play.add(text(seed, 6), 2)
        play.step()
        if long not in play.scheduler.waiting:
            break
    assert long in play.scheduler.running
    # It starts at the latest when all before it have ended, and each of their steps gives at least one token.
    assert len(play.plans) <= ahead * 6 + 1
    assert all(request.finish_reason is None for request in play.added[ahead + 1 :])
    play.finish()


def test_counts_of_a_first_and_a_second_request():
    play = player()
    play.add([*HEAD, 1])
    play.finish()
    play.add([*HEAD, 2, 3])
    play.finish()
    counts = play.scheduler.counts
    assert (counts.prompt_tokens, counts.found_tokens) == (13 + 14, 12)
    assert (counts.preempted, counts.resumed_tokens, counts.found_again_tokens) == (0, 0, 0)


def test_a_thousand_requests_on_a_small_pool_with_cancels_lose_nothing():
    chance = random.Random(5)
    play = player(blocks=40, budget=64)
    for seed in range(1000):
        head = HEAD if seed % 3 else []
        play.add([*head, *text(seed, chance.randrange(1, 20))], chance.randrange(1, 10), salt=str(seed % 2))
    admitted = []
    while len(play.scheduler):
        plan = play.scheduler.plan()
        admitted += [r for r in plan.admitted if r not in admitted[-16:]]
        for share in plan.shares:
            play.memory.run(share)
            if share.chooses:
                share.request.choose()
        if chance.random() < 0.2:
            victim = chance.choice(play.scheduler.running + play.scheduler.waiting)
            play.scheduler.cancel(victim)
            victim.finish_reason = victim.finish_reason or "cancelled"
        play.scheduler.settle(plan)
        if len(play.scheduler) % 50 == 0:
            play.check()
    assert play.pool.num_free == 40
    assert all(r.finish_reason for r in play.added)
    assert all(r.token_ids == r.answer() for r in play.added if r.finish_reason == "length")
    order = [play.added.index(r) for r in admitted]
    assert order == sorted(order)
