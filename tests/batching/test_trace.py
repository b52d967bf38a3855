"""Traces under a simulated clock: what batching gives, and what users see of it. No model, no measured time."""

from __future__ import annotations

import math

import pytest
import torch
from engine.tiny import COMMON

from llmlesson import LessonError
from llmlesson.batching import step_cost, trace
from llmlesson.batching.block_pool import BlockPool
from llmlesson.batching.report import Served, Spread
from llmlesson.batching.scheduler import Plan, Scheduler, Share
from llmlesson.batching.trace import Arrival, policy, random_trace, replay
from llmlesson.engine.config import parse_config
from llmlesson.measure import cost

# A step of n tokens on one thread of a small CPU, measured with the course's model in float32.
CPU = step_cost.curve_cost({1: 0.057, 4: 0.117, 8: 0.157, 16: 0.19, 32: 0.3, 64: 0.33, 128: 0.507, 256: 0.954})
LLAMA_8B = parse_config(
    dict(
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
)
H100 = step_cost.roofline_cost(LLAMA_8B, 989e12, 3.35e12)  # peaks of the SXM model's data sheet, bfloat16


def one_step(*spans):
    """A plan of (start, count) that all choose."""
    return Plan(tuple(Share(object(), start, count, (), True) for start, count in spans))


def test_a_trace_has_the_lengths_and_the_rate_that_were_asked_for():
    arrivals = random_trace(4000, 2.0, 100, 40, sigma=0.5, seed=1)
    assert arrivals[-1].seconds / 4000 == pytest.approx(0.5, rel=0.05)
    assert sum(len(a.ids) for a in arrivals) / 4000 == pytest.approx(100, rel=0.05)
    assert sum(a.new_tokens for a in arrivals) / 4000 == pytest.approx(40, rel=0.05)
    assert arrivals == random_trace(4000, 2.0, 100, 40, sigma=0.5, seed=1)
    assert arrivals != random_trace(4000, 2.0, 100, 40, sigma=0.5, seed=2)


def test_longest_and_shared_tokens_hold():
    arrivals = random_trace(300, math.inf, 50, 50, sigma=1.5, longest=80, shared_tokens=20, seed=3)
    assert {a.seconds for a in arrivals} == {0.0}
    assert len({a.ids[:20] for a in arrivals}) == 1
    assert len({a.ids[20:] for a in arrivals}) > 250
    assert max(len(a.ids) + a.new_tokens for a in arrivals) == 80
    assert min(a.new_tokens for a in arrivals) >= 1


@pytest.mark.parametrize(
    "wrong", [dict(requests=0), dict(rate=0), dict(prompt_tokens=0), dict(new_tokens=0), dict(shared_tokens=2047)]
)
def test_impossible_traces_are_refused(wrong):
    with pytest.raises(LessonError):
        random_trace(**{**dict(requests=3, rate=1.0, prompt_tokens=9, new_tokens=9), **wrong})


def test_a_trace_from_a_file(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("seconds,prompt_tokens,new_tokens\n1.5,3,4\n0,7,1\n", encoding="utf-8")
    arrivals = trace.trace_from_file(path)
    assert [(a.seconds, len(a.ids), a.new_tokens) for a in arrivals] == [(0.0, 7, 1), (1.5, 3, 4)]
    for text in ("", "a,b\n1,2\n", "seconds,prompt_tokens,new_tokens\n1,x,2\n", "seconds,prompt_tokens,new_tokens\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(LessonError):
            trace.trace_from_file(path)
    path.write_text("seconds,prompt_tokens,new_tokens\n0,0,1\n", encoding="utf-8")
    with pytest.raises(LessonError, match="lengths of at least 1"):
        trace.trace_from_file(path)
    with pytest.raises(LessonError, match="can't be read"):
        trace.trace_from_file(tmp_path / "none.csv")


def test_times_are_those_of_the_clock():
    # Two requests, a second a step; the second one comes during the first's third step and waits for its end.
    arrivals = [Arrival(1.0, (1, 2, 3), 4), Arrival(3.5, (4,), 2)]
    played = replay(arrivals, Scheduler(BlockPool(9, 4), max_running=1), lambda plan: 1.0)
    assert [one.tokens_at for one in played.served] == [[2.0, 3.0, 4.0, 5.0], [6.0, 7.0]]
    summary = played.summary()
    assert (summary.seconds, summary.new_tokens, summary.tokens_per_second) == (6.0, 6, 1.0)
    assert (summary.first_token.mean, summary.first_token.most) == ((1.0 + 2.5) / 2, 2.5)
    assert summary.gap == Spread(1.0, 1.0, 1.0, 1.0)
    assert summary.total.most == 4.0
    assert (summary.rows_used, summary.steps) == (1.0, 6)


def test_the_clock_jumps_to_the_next_arrival_when_nothing_runs():
    played = replay([Arrival(100.0, (1,), 1), Arrival(0.0, (2,), 1)], policy("continuous", 9), lambda plan: 1.0)
    assert [one.tokens_at for one in played.served] == [[1.0], [101.0]]


def test_percentiles_are_values_that_occur():
    assert Spread.of([float(n) for n in range(1, 101)]) == Spread(50.5, 50.0, 99.0, 100.0)
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0, 3.0)
    assert math.isnan(Spread.of([]).mean)
    one = Served(None, 1.0, [2.0, 2.5, 4.0])
    assert (one.first_token, one.total, one.gaps) == (1.0, 3.0, [0.5, 1.5])


def test_a_roofline_step_is_the_counted_cost_over_the_peaks():
    config = parse_config(
        {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-6}
    )
    alone = cost.decode(config, 40, dtype=torch.float32)
    flops_only = step_cost.roofline_cost(config, 1e3, 1e30, torch.float32)
    bytes_only = step_cost.roofline_cost(config, 1e30, 1e3, torch.float32)
    assert flops_only(one_step((40, 1))) == pytest.approx(alone.flops / 1e3)
    assert bytes_only(one_step((40, 1))) == pytest.approx(alone.nbytes / 1e3)
    # Eight of them: eight times the arithmetic, and the weights once.
    eight = cost.decode(config, 40, batch=8, dtype=torch.float32)
    assert flops_only(one_step(*[(40, 1)] * 8)) == pytest.approx(eight.flops / 1e3)
    assert bytes_only(one_step(*[(40, 1)] * 8)) == pytest.approx(eight.nbytes / 1e3)
    inner = Plan((Share(object(), 0, 9, (), False),))  # an inner chunk needs no logits
    whole = cost.prefill(config, 9, dtype=torch.float32)
    assert flops_only(inner) == pytest.approx((whole.flops - whole.head_flops) / 1e3)


def test_decode_on_an_h100_by_its_peaks():
    # B = 1: 15.0 GB of weights and 1,000 tokens of K and V over 3.35 TB/s. The batch is nearly free until B* ≈ 295.
    alone, many, too_many = (H100(one_step(*[(1000, 1)] * batch)) for batch in (1, 32, 512))
    assert alone == pytest.approx(4.52e-3, rel=0.01)
    assert many == pytest.approx(5.73e-3, rel=0.01)
    assert too_many == pytest.approx(24.5e-3, rel=0.02)


def test_a_measured_curve_is_read_between_its_points():
    seconds = step_cost.curve_cost({1: 1.0, 5: 3.0, 9: 3.0})
    got = [seconds(one_step((0, tokens))) for tokens in (1, 3, 5, 7, 9, 99)]
    assert got == [1.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    assert step_cost.curve_cost({1: 1.0, 2: 2.0})(one_step((0, 10))) == 10.0
    with pytest.raises(LessonError):
        step_cost.curve_cost({1: 1.0})


def test_an_unknown_policy_is_refused():
    with pytest.raises(LessonError, match="one at a time, static, continuous, chunked"):
        policy("best", 9)


@pytest.mark.parametrize("machine", [CPU, H100], ids=["cpu", "h100"])
def test_continuous_beats_static_beats_one_at_a_time(machine):
    rate, running = (1.2, 8) if machine is CPU else (200.0, 32)
    arrivals = random_trace(60, rate, 109, 35, seed=4)
    one, static, continuous, chunked = (
        replay(arrivals, policy(name, 4096, max_running=running, token_budget=64), machine).summary()
        for name in trace.POLICIES
    )
    assert one.seconds > static.seconds > continuous.seconds
    assert one.first_token.mean > static.first_token.mean > 4 * continuous.first_token.mean
    assert static.rows_used < 0.65 * continuous.rows_used
    assert static.seconds > 1.2 * continuous.seconds
    assert chunked.gap.most < continuous.gap.most  # that is what chunks are for
    assert {s.new_tokens for s in (one, static, continuous, chunked)} == {sum(a.new_tokens for a in arrivals)}


def test_what_does_not_get_better_in_a_batch_is_the_time_between_tokens():
    arrivals = random_trace(40, 0.8, 109, 35, seed=4)
    alone, batched = (replay(arrivals, policy(name, 4096), CPU).summary() for name in ("one at a time", "continuous"))
    assert batched.gap.mean > 1.5 * alone.gap.mean


def test_chunks_bound_the_gap_and_cost_the_long_prompt_time():
    arrivals = [Arrival(0.0, (seed,) * 20, 120) for seed in range(4)] + [Arrival(3.0, (9,) * 1000, 2)]
    gaps, waits = [], []
    for budget in (trace.WHOLE_PROMPTS, 132):
        served = replay(arrivals, policy("chunked", 4096, token_budget=budget), CPU).served
        gaps.append(max(gap for one in served[:4] for gap in one.gaps))
        waits.append(served[4].first_token)
    assert gaps[0] > 4 * gaps[1]
    assert 1.0 < waits[1] / waits[0] < 2.0


def test_paging_serves_three_and_a_half_times_as_many_as_reserving_the_most():
    # 16,384 slots, 300 requests at once. One block of the whole context for each is what reserving means.
    arrivals = random_trace(300, math.inf, 239, 213, longest=2048, seed=0)
    at_once = {}
    for size in (2048, 16):
        scheduler = Scheduler(BlockPool(16_384 // size, size), trace.WHOLE_PROMPTS, 1000, share_prefixes=False)
        played = replay(arrivals, scheduler, lambda plan: 1.0)
        at_once[size] = sum(len(report.plan.shares) for report in played.reports) / len(played.reports)
        filled = played.summary().slots_filled
        assert filled < 0.25 if size == 2048 else filled > 0.95
    assert at_once[16] > 3.5 * at_once[2048]


def test_shared_beginnings_are_counted_once_they_are_found():
    arrivals = random_trace(30, 1.0, 20, 8, shared_tokens=64, seed=5)
    summary = replay(arrivals, policy("continuous", 4096), CPU).summary()
    assert summary.hit_rate > 0.5
    assert summary.counts.preempted == 0
    assert summary.counts.prompt_tokens == sum(len(a.ids) for a in arrivals)


def test_what_a_preempted_request_finds_again_is_no_hit():
    arrivals = random_trace(40, 5.0, 60, 60, sigma=0.5, seed=6)
    summary = replay(arrivals, policy("continuous", 24, max_running=16), lambda plan: 0.1).summary()
    assert summary.counts.preempted > 0
    assert summary.hit_rate == 0
    assert summary.found_again_rate > 0
