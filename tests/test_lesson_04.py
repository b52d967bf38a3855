"""Numbers that lesson 04 states in words: they are those of the model, of the counted cost, of the lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson.lessons.cache_lab import SECOND_TURN, STEPS, CacheLab
from llmlesson.lessons.exercises.mend_cache import BROKEN
from llmlesson.lessons.real import real_engine
from llmlesson.measure import answer

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
    assert f"{times:.0f} times as much without the cache" in PROSE


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


def test_the_second_turn(engine):
    first = engine.generate("What is the capital of France?", cache=engine.new_cache(128))
    conversation = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And of Italy?"},
    ]
    everything = engine.tokenizer.chat(conversation)
    assert f"whole conversation so far, {len(everything)} tokens" in PROSE
    assert f"{len(everything) - first.cache.length}, not {len(everything) - first.cache.length - 1}:" in PROSE
    assert f"cache.truncate({first.cache.length})" in CODE
    assert f"other[{first.cache.length}:]" in CODE


def test_the_lab(engine):
    lab = CacheLab(engine)
    second = engine.tokenizer.encode(SECOND_TURN, special=True)
    assert f"makes {STEPS} steps, and then reads a second turn of {len(second)} tokens" in PROSE
    late, mask, window = (lab.symptoms(bug) for bug in ("late", "top-left", "window"))
    prompt, steps, _ = late.right_lengths
    assert f"0 to {prompt - 1} are the prompt, {prompt} to {steps - 1} the steps, from {steps} on" in PROSE
    # E: wrong in every step, some by more than 2, and the right words
    assert min(late.differences[1:]) > 0.1
    assert max(late.differences) > 2
    assert late.departs is None
    # F and D
    assert mask.first_wrong_step is None
    assert mask.second_turn > 1
    assert window.first_wrong_step == 12
    assert "D is right until its twelfth step" in PROSE


def test_what_is_to_be_mended_is_what_the_package_has():
    assert f"```python\n{BROKEN.strip()}\n```" in RAW
