"""Numbers that lesson 06b states in words: those of the model and of the tables. And its two ways through MLA."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llmlesson import sizing
from llmlesson.engine.config import parse_config
from llmlesson.lessons.real import real_engine
from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "06b_smaller_caches.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
DEEPSEEK = sizing.model_table()["deepseek-ai/DeepSeek-V3"]["config"]


def run(known, *ids):
    """What these cells of the lesson define, given what is known already."""
    for wanted in ids:
        [source] = ["".join(cell["source"]) for cell in CELLS if cell["id"] == wanted]
        exec(compile(source, wanted, "exec"), known)
    return known


@pytest.fixture(scope="module")
def mla():
    return run({"torch": torch}, "mla", "absorbed")


def test_both_ways_give_what_attention_on_unpacked_heads_gives(mla):
    q, latents, up_k, up_v = (mla[name] for name in ("q", "latents", "up_k", "up_v"))
    for head in range(len(q)):
        k, v = latents @ up_k[head], latents @ up_v[head]
        expected = torch.nn.functional.scaled_dot_product_attention(q[head][None], k, v)[0]
        for way in (mla["unpacked"], mla["absorbed"]):
            assert torch.allclose(way(q, latents, up_k, up_v)[head], expected, atol=1e-5)


def test_what_mla_costs(mla):
    heads, context, latent, head_dim = DEEPSEEK["num_attention_heads"], 8_192, DEEPSEEK["kv_lora_rank"], 128
    work = {}
    for name in ("unpacked", "absorbed"):
        shapes = (heads, head_dim), (context, latent), (heads, latent, head_dim), (heads, latent, head_dim)
        with FlopCounterMode(display=False) as counter:
            mla[name](*(torch.empty(shape, device="meta") for shape in shapes))
        work[name] = counter.get_total_flops()
    plain = 4 * heads * context * head_dim
    assert work["absorbed"] / plain == pytest.approx(4, abs=0.1)  # "about four times the arithmetic"
    assert 2 * heads * head_dim / latent == 64  # "64 times fewer bytes"
    assert work["unpacked"] > 100 * work["absorbed"]


def test_flops_of_attention_for_each_byte():
    """The lesson's formula is the engine's count, and gives the number of query heads that share a KV head."""
    known = {"torch": torch, "sizing": sizing, "parse_config": parse_config, "text_table": lambda *_: ""}
    known |= {"heads": DEEPSEEK["num_attention_heads"], "numbers": 576}
    known["stored"] = next(sizing.model_spec(DEEPSEEK).layers[0].attentions)
    points = run(known, "intensity")["points"]
    for full, name in {"Llama-2-7b-hf": "Llama-2-7B", "Llama-3.1-8B": "Llama-3.1-8B"}.items():
        shape = parse_config(sizing.model_table()[f"meta-llama/{full}"]["config"])
        step = cost.decode(shape, cached=8_191, dtype=torch.bfloat16)
        assert points[name] == step.attention_flops / step.kv_read_bytes == shape.group_size
    assert points["DeepSeek-V3, MLA"] == pytest.approx(242, abs=0.5)
    assert H100.ridge == pytest.approx(295, abs=0.5)
    assert 1 / H100.ridge < 0.01  # "wait for more than 99 % of the time"


def test_a_mixture_of_experts():
    assert (DEEPSEEK["n_routed_experts"], DEEPSEEK["num_experts_per_tok"], DEEPSEEK["n_shared_experts"]) == (256, 8, 1)
    assert sizing.model_weights("DeepSeek-V3").read_per_token / 1e9 == pytest.approx(37, abs=0.5)


def test_what_the_other_ideas_leave():
    hybrid = sizing.kv_cache("Qwen3-Next-80B-A3B-Thinking", 32_768)
    linear = sum(layer.kind == "linear" for layer in hybrid.per_layer)
    assert f"{linear} of the {len(hybrid.per_layer)} layers of Qwen3-Next have no attention" in PROSE
    gemma_3n = sizing.kv_cache({"model_type": "gemma3n_text"}, 32_768)
    shared = [layer.kind for layer in gemma_3n.per_layer].count("shared")
    assert f"The last {shared} of the {len(gemma_3n.per_layer)} layers of Gemma-3n keep nothing" in PROSE
    full, small = (sizing.kv_cache("Llama-3.1-8B", 32_768, dtype=dtype).nbytes for dtype in ("bf16", "nvfp4"))
    assert f"leaves {small / full:.0%}".replace("%", " %") in PROSE


def test_bytes_of_a_step():
    def nbytes(kv_heads, context):
        return cost.decode(replace(real_engine().config, num_key_value_heads=kv_heads), cached=context)

    short = nbytes(3, 128)
    assert short.weight_bytes == pytest.approx(0.5e9, rel=0.1)  # "half a gigabyte of weights"
    assert nbytes(9, 8_192).kv_read_bytes == pytest.approx(2 * nbytes(9, 8_192).weight_bytes, rel=0.1)
    assert f"{nbytes(3, 2_048).nbytes / nbytes(1, 2_048).nbytes:.2f} times by count" in PROSE
    fewer, most = nbytes(1, 128), nbytes(9, 128)
    saved = most.nbytes - fewer.nbytes
    assert most.weight_bytes - fewer.weight_bytes > saved / 2  # "most of that comes from the weights"


def test_the_server():
    llama = parse_config(sizing.model_table()["meta-llama/Llama-3.1-8B"]["config"])
    read = {}
    for kv_heads in (32, 8, 1):
        shape = replace(llama, num_key_value_heads=kv_heads)
        read[kv_heads] = cost.decode(shape, cached=8_191, batch=32, dtype=torch.bfloat16).nbytes
    assert f"a step would read {read[32] / 1e9:.0f} GB" in PROSE
    assert read[32] > sizing.get_gpu("H200-141GB").memory_nbytes
    assert read[8] / read[32] == pytest.approx(1 / 3, abs=0.02)
    assert (read[8] - read[1]) / 1e9 == pytest.approx(30, abs=1)
    assert llama.num_key_value_heads == 8
    weights = sizing.model_weights("Llama-3.1-8B")
    step = cost.decode(llama, cached=8_191, batch=32, dtype=torch.bfloat16)
    assert step.weight_bytes == 2 * weights.read_per_token < 2 * weights.total  # the two numbers that the cell prints


def test_deepseek_and_gemma():
    assert sizing.model_weights("DeepSeek-V3").total / 1e9 == pytest.approx(671, abs=0.5)
    deepseek = sizing.model_table()["deepseek-ai/DeepSeek-V3"]["config"]
    assert deepseek["num_attention_heads"] == 128
    assert (deepseek["kv_lora_rank"], deepseek["qk_rope_head_dim"]) == (512, 64)
    llama = sizing.kv_cache("Llama-3.1-8B", 1).per_layer[0]
    assert llama.bytes_per_token // 2 == 2 * 8 * 128 == 2_048
    gemma = sizing.kv_cache("gemma-3-27b-it", 32_768)
    windowed = [layer for layer in gemma.per_layer if layer.cells == 1_024]
    assert f"So {len(windowed)} of {len(gemma.per_layer)} layers of Gemma-3-27B stop growing at 1,024 tokens" in PROSE
