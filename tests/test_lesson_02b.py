"""Numbers that lesson 02b states in words: they are those of the default model, and of its counted cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from llmlesson.engine.config import parse_config
from llmlesson.lessons.real import real_engine
from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100
from llmlesson.sizing import model_table

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "02b_prefill_cost.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
PROMPT = "Explain quantum computing like I'm ten."


@pytest.fixture(scope="module")
def engine():
    return real_engine()


def work(engine, tokens, cached=0):
    return cost.prefill(engine.config, tokens, cached)


def test_sizes_of_the_model(engine):
    c = engine.config
    tokens = len(engine.tokenizer.chat(PROMPT))
    assert f"a row of {c.hidden_size} numbers for each of the {tokens} tokens" in PROSE
    assert f"each of the {c.vocab_size:,} tokens of the vocabulary" in PROSE
    assert f"H the hidden size ({c.hidden_size}) and V the size of the vocabulary ({c.vocab_size:,})" in PROSE
    assert f"the difference is {c.max_position_embeddings * c.vocab_size * 4 / 1e9:.1f} GB" in PROSE


def test_what_the_lens_shows(engine):
    with engine.record() as recording:
        _, token = engine.prefill(engine.tokenizer.chat(PROMPT))
    best = []
    for layer in range(engine.config.num_hidden_layers):
        row = recording[layer].after[-1]
        row = row / (row.square().mean() + engine.config.rms_norm_eps).sqrt() * engine.model.norm.cpu()
        best.append(engine.tokenizer.decode([int((row @ engine.model.head.cpu()).argmax())]))
    assert engine.tokenizer.decode([token]) == best[-1] == "In"
    assert "For twelve layers the lens shows line ends and punctuation. Then *I* leads for fourteen" in PROSE
    assert not any(any(letter.isalnum() for letter in text) for text in best[:12])
    assert best[12:26] == [" I"] * 14
    assert "three others for a layer each, and *In* comes only with the last one" in PROSE
    assert len({" I", "In", *best[26:29]}) == 5
    assert "A model that stopped a single layer earlier would begin with *Imagine*" in PROSE
    assert best[28] == " Imagine"


def test_counted_work(engine):
    assert "has to read 6,144 tokens before the pairs that it needs cost more than all else" in PROSE
    assert work(engine, 6143).attention_flops < work(engine, 6143).flops / 2
    assert work(engine, 6144).attention_flops > work(engine, 6144).flops / 2
    assert f"all {work(engine, 1).weight_bytes / 1e6:.0f} MB of them" in PROSE
    assert work(engine, 1).intensity == pytest.approx(0.5, abs=0.01)  # "half a FLOP for each byte"
    assert "about fifty times the work" in PROSE
    assert work(engine, 64).flops / work(engine, 1).flops == pytest.approx(50, rel=0.05)
    assert "If arithmetic were everything, the factor would be 6.5." in PROSE
    assert f"{work(engine, 8).flops / work(engine, 1).flops:.1f}" == "6.5"
    assert "only about a quarter more to compute" in PROSE
    writing = sum(work(engine, 1, cached).flops for cached in range(500))
    assert writing / work(engine, 500).flops == pytest.approx(1.25, abs=0.05)


def test_work_with_the_whole_table(engine):
    """n² pairs instead of n(n+1)/2, as code does it that computes all scores and then strikes out half of them."""

    def attention(tokens):
        c = engine.config
        return 2 * 2 * c.num_attention_heads * c.head_dim * c.num_hidden_layers * tokens**2

    def rest(tokens):
        return work(engine, tokens).flops - work(engine, tokens).attention_flops

    assert "(With the whole table it is 3,073.)" in PROSE
    assert attention(3072) < rest(3072)
    assert attention(3073) > rest(3073)
    namespace = {"cost": cost, "config": engine.config}
    [source] = ["".join(cell["source"]) for cell in CELLS if cell["id"] == "count"]
    exec(source, namespace)
    for tokens in (1, 2, 7, 64, 1024):
        assert namespace["whole_table"](tokens) == rest(tokens) + attention(tokens)


def test_where_an_h100_turns_from_one_limit_to_the_other():
    assert "An H100 does 295, and a prompt has to have about that many tokens before arithmetic is its limit" in PROSE
    assert round(H100.ridge) == 295
    for name in ("meta-llama/Llama-2-7b-hf", "meta-llama/Llama-3.1-70B"):
        config = parse_config(model_table()[name]["config"])
        works = (cost.prefill(config, tokens, dtype=torch.bfloat16) for tokens in (265, 325))
        assert [work.intensity < H100.ridge for work in works] == [True, False]
