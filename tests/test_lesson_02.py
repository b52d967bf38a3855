"""Numbers that lesson 02 states in words: they are those of the default model and of its attention."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llmlesson.lessons.real import real_engine

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
    assert f"makes {width} numbers of each row, cut into {width // c.head_dim} heads of {c.head_dim}" in PROSE
    assert f"{c.num_attention_heads} of queries and only {c.num_key_value_heads} of keys" in PROSE
    count = c.num_attention_heads * c.num_hidden_layers
    assert f"Each of the {count} heads of the model ({c.num_attention_heads} in each of {c.num_hidden_layers}" in PROSE
    assert c.group_size == 3  # "Three query heads share one of each"
    assert f"its {c.head_dim} numbers are taken as {c.head_dim // 2} pairs" in PROSE
    assert f"each row of {c.hidden_size} numbers becomes two rows of {c.intermediate_size:,}" in PROSE
    assert f"H the hidden size ({c.hidden_size}) and D the numbers of a head ({c.head_dim})" in PROSE


def test_rows_of_the_picture(engine, recording):
    speed = engine.model.frequencies
    assert float(speed[0]) == 1.0  # rows 0 and 32 "turn by a whole radian at each position"
    assert "Rows 0 and 32 are the two halves" in PROSE
    slow = (22, 25, 55)
    assert "such as 22, 25 and 55" in PROSE
    assert all(float(speed[column % 32]) * 10 < 0.01 for column in slow)  # "ten positions make no difference"
    yours = recording[0].k[1, 24:34]
    for column in slow:
        assert yours[:, column].min() > 2 or yours[:, column].max() < -2
    for fast in (0, 32):  # "the sign goes back and forth"
        positive = yours[:, fast] > 0
        assert int((positive[1:] != positive[:-1]).sum()) >= 2


def test_where_heads_look(engine, recording):
    texts = [engine.tokenizer.decode([i], special=True) for i in engine.tokenizer.chat(PROMPT)]
    ten = texts.index(" ten")
    shares = torch.stack([layer.weights[:, ten] for layer in recording.passes[-1].values()])  # [30, 9, 38]
    assert shares.mean(dim=(0, 1))[0] > 0.5  # "More than half."
    assert shares[0, :, 0].max() < 0.1  # "In layer 0 it gets hardly anything."
    assert "head 1 of layer 2, looks at the word just before" in PROSE
    assert shares[2, 1, ten - 1] > 0.8
    assert "Look at a head of layer 24" in PROSE
    assert shares[24, :, 0].min() > 0.5


def test_the_value_of_the_first_token_is_short_in_most_layers(recording):
    lengths = [layer.v.norm(dim=-1) for layer in recording.passes[-1].values()]  # [3, 38] each
    short = [bool(v[:, 0].mean() < v[:, 1:].mean() / 2) for v in lengths]
    assert sum(short) > 20
