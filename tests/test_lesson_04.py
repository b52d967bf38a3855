"""Numbers that lesson 04 states in words: they are those of the model and of the counted cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson.lessons.real import real_engine
from llmlesson.measure import answer, cost

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "04_kv_cache.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
RAW = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
PROSE = " ".join(RAW.split())
CODE = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code")


@pytest.fixture(scope="module")
def engine():
    return real_engine()


@pytest.fixture(scope="module")
def config(engine):
    return engine.config


def test_the_shape_of_a_column(config):
    assert config.num_hidden_layers == 30
    assert f"{config.head_dim} numbers in each of {config.num_key_value_heads} heads" in PROSE


def test_what_is_kept_and_what_it_is_made_of(config):
    c = config
    width = 2 * c.num_key_value_heads * c.head_dim
    assert f"one row of {c.hidden_size} numbers, x" in PROSE
    assert f"{c.num_attention_heads} query heads and only 3 KV heads, so K and V together are {width} numbers" in PROSE
    assert f"With nine KV heads they would be {3 * width:,}, and x would take half the memory" in PROSE
    assert (c.num_key_value_heads, c.num_attention_heads, 3 * width) == (3, 9, 2 * c.hidden_size)
    # Making K and V of a position anew, counted as what they add to the work of reading it.
    step = cost.decode(c, 2000)
    made = 2000 * 2 * c.hidden_size * width * c.num_hidden_layers
    assert made > 50 * step.flops


def test_the_articles_case(config):
    cached, without = answer.with_cache(config, 2000, 500), answer.without_cache(config, 2000, 500)
    assert "2,000 + 499 (the last token is never read), not 1,124,750." in CODE
    assert (cached.positions, without.positions) == (2000 + 499, 1_124_750)
    assert f"{without.positions / cached.positions:.0f} times as many positions" in PROSE
    assert f"{without.flops / 1e12:.0f} trillion FLOPs become less than one trillion" in PROSE
    assert cached.flops < 1e12
    assert cached.passes == without.passes


def test_sixteen_times_smaller(config):
    assert (2000 // 16, 500 // 16) == (125, 31)
    times = answer.without_cache(config, 125, 31).flops / answer.with_cache(config, 125, 31).flops
    assert f"the loop without the cache then has {times:.0f} times as much work" in PROSE


def test_powers_of_the_length(config):
    """The table of Step 4: each doubling multiplies by 2, 4 or 8."""

    def grown(count, field, start):
        double, single = count(config, 8 * start, 2 * start), count(config, 4 * start, start)
        return getattr(double, field) / getattr(single, field)

    for field, with_cache, without in (("positions", 2, 4), ("attention_reads", 4, 8)):
        assert grown(answer.with_cache, field, 500) == pytest.approx(with_cache, rel=0.01)
        assert grown(answer.without_cache, field, 500) == pytest.approx(without, rel=0.01)


def test_where_attention_is_half(config):
    by_flops, by_bytes = answer.decode_break_even(config)
    assert f"half of a decode step's arithmetic at {by_flops:,} tokens of context" in PROSE
    assert f"that would be at {by_bytes:,}, and the context ends at {config.max_position_embeddings:,}" in PROSE
