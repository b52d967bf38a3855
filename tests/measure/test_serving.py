"""The throughput–latency curve: Little's law at every point, and the same as a server simulated step by step."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlesson.engine.config import parse_config
from llmlesson.errors import LessonError
from llmlesson.measure import answer, cost, data_sheets
from llmlesson.measure.serving import Service
from llmlesson.sizing import fit, get_gpu, model_table

tokens = st.integers(1, 5_000)
amount = st.floats(1e3, 1e15)
services = st.builds(
    Service,
    prompt=tokens,
    answer=tokens,
    prompt_flops=amount,
    answer_flops=amount,
    weight_bytes=amount,
    cache_bytes=amount,
    room=st.integers(1, 3_000),
    flops_per_second=amount,
    bytes_per_second=amount,
)


def on_h100(name, kv_dtype, prompt=3_500, answers=500, arithmetic=0.5):
    config = parse_config(model_table()[name]["config"])
    plan = fit(name, "H100-80GB", kv_dtype=kv_dtype, context=prompt + answers)
    reading, whole = cost.prefill(config, prompt).flops, answer.with_cache(config, prompt, answers).flops
    flops = arithmetic * plan.gpu.flops
    sizes = plan.read_nbytes, plan.kv_nbytes_per_user, plan.users
    return Service(prompt, answers, reading, whole - reading, *sizes, flops, plan.gpu.bandwidth)


@given(services, st.booleans())
@settings(deadline=None)
def test_every_point_obeys_littles_law_and_both_limits(service, chunked):
    points = service.curve(chunked)
    assert [point.users for point in points][-1] == service.room
    for point in points:
        assert point.requests_per_second * point.request_seconds == pytest.approx(point.users)
        assert point.each * point.request_seconds == pytest.approx(service.answer)
        # A second has no more FLOPs and bytes than the machine.
        flops = service.prompt_flops + service.answer_flops
        assert point.requests_per_second * flops <= service.flops_per_second * (1 + 1e-9)
        read = service.weight_bytes + point.users * service.cache_bytes
        assert point.each * read <= service.bytes_per_second * (1 + 1e-9)
    for fewer, more in pairwise(points):  # more users: no one is served faster, and all together no slower
        assert more.each <= fewer.each * (1 + 1e-9)
        assert more.in_all >= fewer.in_all * (1 - 1e-9)


@given(services)
@settings(deadline=None)
def test_reading_prompts_in_the_same_steps_is_never_slower(service):
    for together, apart in zip(service.curve(), service.curve(chunked=False), strict=True):
        assert together.each >= apart.each * (1 - 1e-9)


@given(services)
@settings(deadline=None)
def test_the_turning_point_is_where_the_limit_changes(service):
    turn = service.turning_point
    if turn is None:
        assert service.at(service.room).limit == "memory"
    else:
        assert service.at(turn).limit == "arithmetic"
        assert turn == 1 or service.at(turn - 1).limit == "memory"


def simulated(service, users, requests=600):
    """Requests a second, and seconds a request, of a server that does one step after the other with a token budget."""
    budget = users * (service.prompt + service.answer) / (service.answer + 1)  # tokens of a step
    waiting = deque([0.0, service.prompt * i / users] for i in range(users))  # [start, tokens of the prompt left]
    writing = []  # [start, tokens of the answer left]
    now, done = 0.0, []
    while len(done) < requests:
        room = budget - len(writing)
        read = 0.0
        step_writers = len(writing)
        while waiting and room - read > 1e-9:
            some = min(waiting[0][1], room - read)
            waiting[0][1] -= some
            read += some
            if waiting[0][1] > 1e-9:
                break
            writing.append([waiting.popleft()[0], service.answer])
        flops = read / service.prompt * service.prompt_flops
        flops += step_writers / service.answer * service.answer_flops
        nbytes = service.weight_bytes + users * service.cache_bytes
        now += max(flops / service.flops_per_second, nbytes / service.bytes_per_second)
        for request in writing:
            request[1] -= 1
        done += [(request[0], now) for request in writing if request[1] <= 0]
        waiting.extend([now, float(service.prompt)] for request in writing if request[1] <= 0)
        writing = [request for request in writing if request[1] > 0]
    settled = done[requests // 2 :]
    rate = (len(settled) - 1) / (settled[-1][1] - settled[0][1])
    return rate, sum(end - start for start, end in settled) / len(settled)


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("users", [16, 64, 116])
def test_a_simulated_server_gives_the_same(users, kv_dtype):
    service = on_h100("meta-llama/Llama-3.1-8B", kv_dtype)
    rate, seconds = simulated(service, users)
    point = service.at(users)
    one = 1.2 / users  # the request whose prompt is being read gets no token in that step
    assert rate == pytest.approx(point.requests_per_second, rel=one + 0.02)
    assert seconds == pytest.approx(point.request_seconds, rel=one + 0.02)


def test_llama_8b_on_an_h100():
    """3,500 tokens in, 500 out, half of the arithmetic: the numbers by hand, and of prompts that are read apart."""
    service = on_h100("meta-llama/Llama-3.1-8B", "bf16")
    flops = service.prompt_flops + service.answer_flops
    full = service.at(116)
    assert full.requests_per_second == pytest.approx(0.5 * 989e12 / flops) == pytest.approx(8.17, abs=0.01)
    assert (round(full.request_seconds, 1), round(full.each)) == (14.2, 35)
    apart = service.at(116, chunked=False)
    assert round(apart.requests_per_second, 1) == 4.9
    assert (round(apart.request_seconds, 1), round(apart.each)) == (23.5, 21)
    eight = on_h100("meta-llama/Llama-3.1-8B", "fp8").at(232, chunked=False)
    assert (round(eight.requests_per_second, 1), round(eight.request_seconds, 1)) == (6.5, 35.7)
    assert round(eight.each) == 14


def test_more_users_than_there_is_room_for_are_refused():
    service = on_h100("meta-llama/Llama-3.1-8B", "bf16")
    with pytest.raises(LessonError, match="room for 116 caches"):
        service.at(117)
    with pytest.raises(LessonError, match="users must be at least 1"):
        service.at(0)


def test_the_critical_batch_is_peak_over_bandwidth():
    card = get_gpu("H100-80GB")
    assert round(card.critical_batch) == 295
    # Weights alone, no cache and no prompt: memory and arithmetic take the same time.
    service = Service(1, 1, 0, 2e9, 2e9, 0, 10_000, card.flops, card.bandwidth)
    assert service.turning_point == 296


@pytest.mark.parametrize(("name", "sheet"), [("H100-80GB", data_sheets.H100), ("T4-16GB", data_sheets.T4)])
def test_both_tables_of_cards_have_the_same_peaks(name, sheet):
    card = get_gpu(name)
    assert (card.flops, card.bandwidth) == (sheet.flops_per_second, sheet.bytes_per_second)


def test_without_room_there_is_no_curve():
    service = on_h100("meta-llama/Llama-3.1-8B", "bf16")
    empty = Service(**{**service.__dict__, "room": 0})
    assert (empty.curve(), empty.turning_point) == ([], None)
