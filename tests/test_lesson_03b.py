"""Numbers that lesson 03b states in words: they are those of the model, of the counted cost, of the data sheets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llmlesson.engine.config import parse_config
from llmlesson.lessons.exercise import find_exercise
from llmlesson.lessons.real import real_engine
from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100, T4
from llmlesson.sizing import kv_cache, model_table

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "03b_decode_time.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
LONG_ANSWER = (
    "In the realm of computing, I'm a quantum computing assistant designed to explain the intricacies of "
    "quantum mechanics to those who don't understand the basics. I'm here to help you understand the "
    "science behind the technology that's shaping our world.\n\n"
    "I'm a quantum computing assistant, and I'm designed to provide explanations that are both technical "
    "and accessible. I'll use simple language and avoid technical jargon whenever possible. I'll also "
    "offer insights that are relevant to the field of quantum computing, and I'll strive to provide clear"
    " and concise information.\n\n"
    "I'm not here to make you feel intimidated or confused. I'm here to help you learn and understand the"
    " science behind quantum computing. I'm here to share my knowledge and expertise, and I'm here to "
    "help you explore the possibilities of this incredible technology.\n\n"
    "So, what do I have to share? I'm here to help you understand the science behind quantum computing, "
    "and I'm ready to assist you in any way I can."
)


@pytest.fixture(scope="module")
def engine():
    return real_engine()


def decode_cost(name, cached, batch=1):
    config = parse_config(model_table()[name]["config"])
    return cost.decode(config, cached, batch=batch, dtype=torch.bfloat16)


def test_the_long_answer(engine):
    """One pass over prompt and answer, instead of 200 steps: each token is the likeliest after those before it."""
    prompt = engine.tokenizer.chat("Explain quantum computing like I'm ten.")
    answer = engine.tokenizer.encode(LONG_ANSWER)
    likeliest = engine.logits(prompt + answer)[len(prompt) - 1 :].argmax(dim=-1).tolist()
    assert likeliest[:-1] == answer
    assert likeliest[-1] in engine.eos_token_ids
    assert f"this model gives {len(likeliest)} tokens" in PROSE
    second, last = len(prompt) + 1, len(prompt) + len(answer)
    assert f"the 2nd token looks back at {second} tokens" in PROSE
    assert f"the 200th looks back at {last}, six times as many" in PROSE
    assert last / second == pytest.approx(6, abs=0.2)


def test_what_a_step_reads(engine):
    early, late = cost.decode(engine.config, 38), cost.decode(engine.config, 236)
    assert f"{early.weight_bytes / 1e6:.0f} million bytes" in PROSE
    assert f"{late.nbytes / early.nbytes - 1:.1%} more bytes".replace("%", " %") in PROSE
    assert "half a FLOP for each byte" in PROSE
    assert early.intensity == pytest.approx(0.5, abs=0.02)
    assert late.intensity == pytest.approx(0.5, abs=0.02)
    assert cost.prefill(engine.config, 38).intensity > 20 * early.intensity


def test_where_the_cache_counts(engine):
    far = cost.decode(engine.config, 6_000)
    context = engine.config.max_position_embeddings
    assert f"At 6,000 of the {context:,} tokens of its context the cache has half the bytes of the weights" in PROSE
    assert far.kv_read_bytes / far.weight_bytes == pytest.approx(0.5, abs=0.02)


def test_seven_billion():
    llama, config = "meta-llama/Llama-2-7b-hf", model_table()["meta-llama/Llama-2-7b-hf"]["config"]
    assert f"whose memory gives {H100.bytes_per_second / 1e9:,.0f} GB a second" in PROSE
    short, far = decode_cost(llama, 1_000), decode_cost(llama, 100_000)
    assert f"Its own context ends at {config['max_position_embeddings']:,}" in PROSE
    assert f"the cache of Llama-2-7B is {far.kv_read_bytes / 1e9:.0f} GB, four times its weights" in PROSE
    assert far.kv_read_bytes / far.weight_bytes == pytest.approx(4, abs=0.1)
    assert f"so that {short.weight_bytes / 1e9:.1f} GB are left" in PROSE
    assert "nearly five times as long as with 1,000" in PROSE
    assert 4.5 < far.nbytes / short.nbytes < 5
    qwen = decode_cost("Qwen/Qwen2.5-7B", 100_000)
    assert "Qwen2.5-7B is about as large, and its cache is nine times smaller" in PROSE
    assert far.kv_read_bytes / qwen.kv_read_bytes == pytest.approx(9, abs=0.2)


def test_users_who_share_a_step():
    def shared(users):
        return decode_cost("Qwen/Qwen2.5-7B", 1_000, batch=users)

    alone = H100.least_seconds(shared(1))
    assert "64 users get 51 times the tokens of one, and each waits only a quarter longer" in PROSE
    assert 64 * alone / H100.least_seconds(shared(64)) == pytest.approx(51, abs=0.5)
    assert H100.least_seconds(shared(64)) / alone == pytest.approx(1.25, abs=0.01)
    many = shared(512)
    assert "with 512 users the caches are two thirds of the bytes, and each of them waits three times as long" in PROSE
    assert many.kv_read_bytes / many.nbytes == pytest.approx(2 / 3, abs=0.02)
    assert H100.least_seconds(many) / alone == pytest.approx(3, abs=0.1)
    assert "no number of users brings decode to this card's ridge" in PROSE
    assert shared(10**6).intensity < H100.ridge
    assert f"The caches of 512 users take {many.kv_read_bytes / 1e9:.0f} GB of the card's 80" in PROSE
    assert H100.memory_nbytes == 80e9


def test_the_try_after_the_exercise():
    qwen, per_token = decode_cost("Qwen/Qwen2.5-7B", 1_000), kv_cache("Qwen2.5-7B", tokens=1).nbytes
    assert f"Take a T4 ({T4.bytes_per_second / 1e9:,.0f} GB/s) with Qwen2.5-7B, {per_token:,} bytes of cache" in PROSE
    assert f"{qwen.weight_bytes / 1e9:.1f} GB of weights" in PROSE
    assert qwen.nbytes < T4.memory_nbytes
    exercise = find_exercise("tokens-per-second")
    speed = exercise.build(exercise.solution)
    # The function counts what the table of Step 3 was computed from.
    for users in (1, 8, 64):
        step = decode_cost("Qwen/Qwen2.5-7B", 1_000, batch=users)
        mine = speed(qwen.weight_bytes, per_token, 1_000, users, H100.bytes_per_second / 1e9)
        assert mine == pytest.approx(users / H100.least_seconds(step), rel=0.01)
