"""Numbers that lesson 03 states in words: they are those of the model, of the counted cost, of the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llmlesson.engine.config import parse_config
from llmlesson.lessons.exercise import find_exercise
from llmlesson.lessons.real import real_engine
from llmlesson.measure import cost
from llmlesson.sizing import get_gpu, kv_cache, model_table

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "03_decode.ipynb"
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
STORY = "The story of a dragon is a timeless tale of"


@pytest.fixture(scope="module")
def engine():
    return real_engine()


def decode_cost(name, cached):
    return cost.decode(parse_config(model_table()[name]["config"]), cached, dtype=torch.bfloat16)


def test_the_short_answer(engine):
    answer = engine.generate("What is the capital of France?")
    assert f"it is {len(answer.prompt_ids)} tokens. The answer will be {len(answer.token_ids)} tokens" in PROSE
    assert answer.finish_reason == "eos"
    assert f"{engine.config.vocab_size:,} numbers, a score for every token" in PROSE


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


def test_the_dragon(engine):
    """The places that the lesson and its widget look at lie on the greedy path."""
    ids = engine.generate("Tell me a story about a dragon.", max_new_tokens=11).token_ids
    assert engine.tokenizer.decode(ids[:10]) == STORY
    assert engine.tokenizer.encode(STORY) == ids[:10]
    calm, fork = engine.logits(engine.tokenizer.chat("Tell me a story about a dragon.") + ids)[[-8, -2]].softmax(dim=-1)
    assert calm.max() > 0.9  # "with p=0.9 keeps 1 token"
    assert fork.max() < 0.2
    assert " magic" in [engine.tokenizer.decode([i]) for i in fork.topk(8).indices]
    # "k=5 lets four unlikely ones in at the first place"
    assert calm.topk(5).values[1:].max() < 0.02


def test_what_a_step_reads(engine):
    early, late = cost.decode(engine.config, 38), cost.decode(engine.config, 236)
    assert f"{early.weight_bytes / 1e6:.0f} million bytes" in PROSE
    assert f"it is {late.nbytes / early.nbytes - 1:.0%}".replace("%", " %") + " more bytes" in PROSE
    assert "half a FLOP (floating-point operation) for each byte" in PROSE
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
    short, far = decode_cost(llama, 1_000), decode_cost(llama, 100_000)
    assert f"Its own context ends at {config['max_position_embeddings']:,}" in PROSE
    assert f"the cache of Llama-2-7B is {far.kv_read_bytes / 1e9:.0f} GB, four times its weights" in PROSE
    assert far.kv_read_bytes / far.weight_bytes == pytest.approx(4, abs=0.1)
    assert f"so that {short.weight_bytes / 1e9:.1f} GB are left" in PROSE
    assert "nearly five times as long as with 1,000" in PROSE
    assert 4.5 < far.nbytes / short.nbytes < 5
    qwen = decode_cost("Qwen/Qwen2.5-7B", 100_000)
    assert "Qwen2.5-7B is as large, and its cache is nine times smaller" in PROSE
    assert far.kv_read_bytes / qwen.kv_read_bytes == pytest.approx(9, abs=0.2)


def test_the_try_after_the_last_exercise():
    qwen, card = decode_cost("Qwen/Qwen2.5-7B", 1_000), get_gpu("H100-80GB")
    per_token = kv_cache("Qwen2.5-7B", tokens=1).nbytes
    assert f"H100 ({card.bandwidth / 1e9:,.0f} GB/s) give with Qwen2.5-7B, {per_token:,} bytes of cache" in PROSE
    assert f"{qwen.weight_bytes / 1e9:.1f} GB of weights" in PROSE
    assert f"promises {card.bandwidth / 1e9:,.0f} GB a second" in PROSE
    exercise = find_exercise("tokens-per-second")
    speed = exercise.build(exercise.solution)
    alone, many = (speed(qwen.weight_bytes, per_token, 1_000, users, card.bandwidth / 1e9) for users in (1, 64))
    assert many > 50 * alone  # nobody notices much


def test_where_an_h100_leaves_memory():
    """Peaks of NVIDIA's data sheet (SXM): 989 TFLOP/s in 16 bits, dense."""
    assert "an H100 can do about 300 FLOPs in 16 bits in the time that a byte takes" in PROSE
    assert 989e12 / get_gpu("H100-80GB").bandwidth == pytest.approx(300, rel=0.03)
