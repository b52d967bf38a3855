"""Numbers that lesson 02 states in words: they are those of the default model, its cost and its cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson.lessons.real import real_engine
from llmlesson.measure import cost

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "02_prefill.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
PROMPT = "Explain quantum computing like I'm ten."


@pytest.fixture(scope="module")
def engine():
    return real_engine()


@pytest.fixture(scope="module")
def recording(engine):
    with engine.record() as recording:
        engine.prefill(engine.tokenizer.chat(PROMPT))
    return recording


def test_sizes_of_the_model(engine):
    c = engine.config
    tokens = len(engine.tokenizer.chat(PROMPT))
    assert f"a list of numbers, here {c.hidden_size} of them" in PROSE
    assert f"The model has {c.num_hidden_layers} layers" in PROSE
    assert f"Your {tokens} vectors go in, {tokens} vectors come out" in PROSE
    width = (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim
    assert f"makes {width} numbers of each row" in PROSE
    assert f"**heads** of {c.head_dim} numbers" in PROSE
    assert f"There are {c.num_attention_heads} heads of queries and only {c.num_key_value_heads} of keys" in PROSE
    assert c.group_size == 3  # "three query heads share each"
    assert f"its {c.head_dim} numbers are taken as {c.head_dim // 2} pairs" in PROSE
    assert f"each row of {c.hidden_size} numbers becomes two rows of {c.intermediate_size:,}" in PROSE
    assert f"each of the {c.vocab_size:,} tokens of the vocabulary" in PROSE
    assert f"the hidden size ({c.hidden_size}), D the numbers of a head ({c.head_dim})" in PROSE
    assert f"V the size of the vocabulary ({c.vocab_size:,})" in PROSE
    assert f"the difference is {c.max_position_embeddings * c.vocab_size * 4 / 1e9:.1f} GB" in PROSE


def test_columns_of_the_picture(engine, recording):
    speed = engine.model.frequencies
    assert float(speed[0]) == 1.0  # columns 0 and 32 "turn by a whole radian at each position"
    assert "Columns 0 and 32 are the two halves" in PROSE
    slow = (22, 25, 55)
    assert "such as 22, 25 and 55" in PROSE
    assert all(float(speed[column % 32]) * 10 < 0.01 for column in slow)  # "ten positions make no difference"
    yours = recording[0].k[1, 24:34]
    for column in slow:
        assert yours[:, column].min() > 2 or yours[:, column].max() < -2
    for fast in (0, 32):  # "the sign goes back and forth"
        positive = yours[:, fast] > 0
        assert int((positive[1:] != positive[:-1]).sum()) >= 2


def test_where_heads_look(recording):
    shares = [recording[layer].weights[:, 5:, 0].mean(dim=-1) for layer in (0, 24)]  # [Hq] each, of the first token
    assert "Compare layer 0, where attention is spread out, with layer 24." in PROSE
    assert shares[0].max() < 0.1
    assert "every head looks mostly at the very first token" in PROSE
    assert shares[1].min() > 0.5


def test_counted_work(engine):
    def work(tokens, cached=0):
        return cost.prefill(engine.config, tokens, cached)

    assert "has to read 6,144 tokens before attention costs more than all else" in PROSE
    assert work(6143).attention_flops < work(6143).flops / 2 < work(6144).flops / 2 < work(6144).attention_flops
    assert f"all {work(1).weight_bytes / 1e6:.0f} MB of them" in PROSE
    assert work(1).intensity == pytest.approx(0.5, abs=0.01)  # "half a FLOP for each byte"
    assert "about fifty times the work" in PROSE
    assert work(64).flops / work(1).flops == pytest.approx(50, rel=0.05)
    assert "only about a quarter more to compute" in PROSE
    writing = sum(work(1, cached).flops for cached in range(500))
    assert writing / work(500).flops == pytest.approx(1.25, abs=0.05)
