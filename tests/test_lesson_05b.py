"""Numbers that lesson 05b states in words: those of sizing, of the curve's model, and of quoted logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from llmlesson import sizing
from llmlesson.engine.config import parse_config
from llmlesson.measure import answer, cost
from llmlesson.measure.serving import Service
from llmlesson.sizing import fit, max_tokens, model_table

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "05b_kv_cache_capacity.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
CODE = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code")
LLAMA_2, LLAMA_3 = "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-3.1-8B"
H100 = sizing.get_gpu("H100-80GB")


def service(name=LLAMA_3, kv_dtype="bf16", prompt=3_500, tokens=500, card="H100-80GB"):
    config = parse_config(model_table()[name]["config"])
    plan = fit(name, card, kv_dtype=kv_dtype, context=prompt + tokens)
    reading, whole = cost.prefill(config, prompt).flops, answer.with_cache(config, prompt, tokens).flops
    memory = plan.read_nbytes, plan.kv_nbytes_per_user, plan.users
    return Service(prompt, tokens, reading, whole - reading, *memory, 0.5 * plan.gpu.flops, plan.gpu.bandwidth)


def test_what_fits():
    plan = fit(LLAMA_3, H100.name)
    memory, reserve, weights, left = (
        f"{nbytes / 1e9:.2f}"
        for nbytes in (H100.memory_nbytes, plan.reserve_nbytes, plan.weights_nbytes, plan.kv_budget_nbytes)
    )
    assert f"{memory} GB, less {reserve} kept free, less {weights} of weights, leaves {left}." in PROSE
    small = fit(LLAMA_3, "T4-16GB")
    assert small.kv_budget_nbytes < 0 < small.gpu.memory_nbytes - small.weights_nbytes


def test_what_the_calculator_finds():
    four = fit(LLAMA_3, "RTX4090-24GB", weights_dtype="q4_0", context=16_000)
    whole = fit(LLAMA_3, "RTX4090-24GB", context=16_000)
    assert f"(a) {four.users}. Without 4 bits: {whole.users}." in PROSE
    on_l4 = max_tokens(LLAMA_3, fit(LLAMA_3, "L4-24GB").kv_budget_nbytes, batch=2)
    assert f"(b) {on_l4:,} tokens." in PROSE
    quantized, plain = (fit(LLAMA_3, H100.name, kv_dtype=dtype) for dtype in ("q8_0", "bf16"))
    assert f"(c) {quantized.users}, and no longer {plain.users}" in PROSE


def test_the_logs_add_up_and_their_riddle_has_33_layers():
    for total, weights, outside, activations, left in re.findall(
        r'": \(([\d.]+), ([\d.]+), ([\d.]+), ([\d.]+), ([\d.]+)\),', CODE
    ):
        sums = 0.9 * float(total) - float(weights) - float(outside) - float(activations)
        assert sums == pytest.approx(float(left), abs=0.02)
        assert float(weights) == pytest.approx(fit(LLAMA_3, H100.name).weights_nbytes / 2**30, abs=0.005)
    assert f"Our plan for that is {fit(LLAMA_3, 'A100-40GB', context=8_192).users} users" in PROSE
    assert f"The driver reports {H100.memory_nbytes / 2**30:.2f} GiB" in PROSE
    per_token = sizing.kv_cache(LLAMA_3, 1).nbytes
    logged = 51.63 * 2**30 / 410_128
    assert round(logged / (per_token / 32), 2) == 33
    assert f"{logged:,.0f} bytes a token, where Llama-3.1-8B takes {per_token:,}".replace("135,171", "135,170") in PROSE
    assert f"{410_128 / 131_072:.2f}x" in PROSE
    assert f"requests of 8,192 tokens the same memory holds {410_128 // 8_192}" in PROSE


def test_the_step_and_littles_law():
    full = service().at(116)
    assert f"{full.requests_per_second:.2f} × {full.request_seconds:.1f} = {full.users}." in PROSE
    assert service().room == 116
    assert service(kv_dtype="fp8").room == 232
    assert f"{service().turning_point} users in 16 bits are served as fast in all as 116" in PROSE
    assert service().at(51).in_all == pytest.approx(full.in_all)
    assert service(kv_dtype="fp8").at(232).in_all == pytest.approx(full.in_all)
    eight = service(kv_dtype="fp8")
    assert f"With 8 bits, {eight.turning_point} are enough" in PROSE
    each = eight.at(eight.turning_point).each, service().at(service().turning_point).each
    assert f"served at {each[0]:.0f} tokens a second, not {each[1]:.0f}" in PROSE


def test_prompts_in_steps_of_their_own():
    apart = service().at(116, chunked=False), service(kv_dtype="fp8").at(232, chunked=False)
    assert (
        f"end {apart[0].requests_per_second:.1f} requests a second, each after {apart[0].request_seconds:.1f} s"
        in PROSE
    )
    assert f"it is {apart[1].requests_per_second:.1f}, after {apart[1].request_seconds:.1f} s" in PROSE


def test_the_critical_batch():
    assert f"{H100.critical_batch:.0f} FLOPs in the time of a byte" in PROSE
    assert f"At half of the arithmetic it is {H100.critical_batch / 2:.0f}." in PROSE
    assert f"51 users are {service().at(51).step_tokens:.0f} tokens" in PROSE


def test_what_the_curve_shows():
    assert f"MHA's wall comes at {service(LLAMA_2).room} users" in PROSE
    long = service(prompt=400, tokens=3_600), service(kv_dtype="fp8", prompt=400, tokens=3_600)
    assert [one.turning_point for one in long] == [None, None]
    walls = [one.at(one.room) for one in long]
    assert walls[1].in_all == pytest.approx(2 * walls[0].in_all, rel=0.01)
    assert walls[1].each == pytest.approx(walls[0].each, rel=0.01)
    for name, dtype in ((LLAMA_2, "bf16"), (LLAMA_3, "bf16"), (LLAMA_3, "fp8")):
        assert service(name, dtype, card="L4-24GB").turning_point is None  # "full before its arithmetic is"


def test_the_colleague_of_the_questions_breaks_littles_law():
    assert 10 * 8 != 200
    assert "10 × 8 = 80 requests are in flight, not 200" in PROSE
    assert 200 / 10 == 20
    assert "Then a user waits 20 seconds" in PROSE
