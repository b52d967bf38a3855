"""Numbers that lesson 06 states in words, and its claims about merged heads: those of the model and of the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from llmlesson.engine import Engine
from llmlesson.lessons.real import real_engine
from llmlesson.measure import cost

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "06_gqa.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def lesson():
    """What the lesson's own helpers are: variant, perplexity, paragraph."""
    engine = real_engine()
    known = {"engine": engine, "model": engine.model, "config": engine.config}
    known |= {"torch": torch, "F": F, "replace": replace, "Engine": Engine}
    [source] = ["".join(cell["source"]) for cell in CELLS if cell["id"] == "helpers"]
    exec(compile(source, "helpers", "exec"), known)
    with torch.no_grad():
        yield known


def mean(columns):
    return columns.mean(dim=1, keepdim=True)


def mean_three_times(columns):
    return mean(columns).repeat(1, 3, 1)


def answer(engine):
    return engine.generate(QUESTION, max_new_tokens=12).text


def test_perplexity_as_trained_and_with_heads_in_the_wrong_order(lesson):
    engine, vocabulary = lesson["engine"], lesson["config"].vocab_size
    assert f"At {lesson['perplexity'](engine, lesson['paragraph']):.0f} it is as unsure" in PROSE
    assert f"would give {vocabulary:,}, the size" in PROSE
    tiled = lesson["variant"](9, lambda columns: columns.repeat(1, 3, 1))
    assert lesson["perplexity"](tiled, lesson["paragraph"]) > vocabulary  # "worse than knowing nothing"


def test_nine_interleaved_heads_are_the_same_model(lesson):
    expanded = lesson["variant"](9, lambda columns: columns.repeat_interleave(3, dim=1))
    ids = lesson["engine"].tokenizer.encode(lesson["paragraph"])
    assert (expanded.logits(ids) - lesson["engine"].logits(ids)).abs().max() < 1e-3


def test_damage_of_the_mean(lesson):
    """One layer: hardly any. The last five: the number hardly moves, the answer is gone. All: no language."""
    variant, perplexity, paragraph = (lesson[name] for name in ("variant", "perplexity", "paragraph"))
    trained = perplexity(lesson["engine"], paragraph)
    one = variant(3, mean_three_times, only=[15])
    assert perplexity(one, paragraph) < 1.1 * trained
    assert "Paris" in answer(one)
    last = variant(3, mean_three_times, only=range(25, 30))
    assert perplexity(last, paragraph) < 1.3 * trained
    assert "Paris" not in answer(last)
    every = variant(1, mean)
    assert perplexity(every, paragraph) > 100 * trained
    assert perplexity(variant(1, lambda columns: columns[:, :1]), paragraph) > perplexity(every, paragraph)


def test_the_order_of_the_numbers_in_a_value_is_arbitrary(lesson):
    """Shuffled in V, and in the rows of `out` in the same way: the same model."""
    model, config = lesson["model"], lesson["config"]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(6))
    layers = list(model.layers)
    for i, layer in enumerate(layers):
        qkv, out = layer.qkv.clone(), layer.out.clone()
        qkv[:, 12 * 64 : 13 * 64] = qkv[:, 12 * 64 : 13 * 64][:, order]  # V of KV head 0, behind 9 of Q and 3 of K
        for head in range(config.group_size):
            rows = slice(head * 64, (head + 1) * 64)
            out[rows] = out[rows][order]
        layers[i] = replace(layer, qkv=qkv, out=out)
    engine = lesson["engine"]
    shuffled = Engine("shuffled", replace(model, layers=layers), engine.tokenizer, engine.eos_token_ids)
    ids = engine.tokenizer.encode(lesson["paragraph"])
    assert (shuffled.logits(ids) - engine.logits(ids)).abs().max() < 1e-3


def test_copies_take_twice_the_weights(lesson):
    written = 2 * 9 * 8_192 * 64 * 4 * 30
    assert written > 1e9  # "more than a gigabyte"
    assert 2 <= written / lesson["model"].nbytes < 2.2


def test_the_arithmetic_that_shrinks_and_the_arithmetic_that_stays(lesson):
    of = {n: cost.prefill(replace(lesson["config"], num_key_value_heads=n), tokens=1_000) for n in (9, 3)}
    saved = of[9].projection_flops - of[3].projection_flops
    assert f"Of the {of[9].projection_flops / 1e9:.1f} GFLOPs that make queries, keys, values" in PROSE
    assert f"{saved / 1e9:.1f} are gone with three heads" in PROSE
    assert of[9].attention_flops == of[3].attention_flops
