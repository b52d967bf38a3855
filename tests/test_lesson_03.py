"""Numbers that lesson 03 states in words: they are those of the default model and of its choices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson import Sampling
from llmlesson.lessons.real import real_engine

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "03_decode.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
STORY = "The story of a dragon is a timeless tale of"


@pytest.fixture(scope="module")
def engine():
    return real_engine()


def test_the_short_answer(engine):
    answer = engine.generate("What is the capital of France?")
    assert f"it is {len(answer.prompt_ids)} tokens. The answer will be {len(answer.token_ids)} tokens" in PROSE
    assert answer.finish_reason == "eos"
    assert f"{engine.config.vocab_size:,} numbers, a score for every token" in PROSE


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


def test_a_high_temperature_gives_most_draws_to_tokens_that_are_not_shown(engine):
    fork = engine.logits(engine.tokenizer.chat("Tell me a story about a dragon.") + engine.tokenizer.encode(STORY))[-1]
    shown = fork.topk(16).indices
    assert f"each of the other {engine.config.vocab_size - 16:,} tokens is still very unlikely" in PROSE
    drawn = list(Sampling(temperature=1.5).explain(fork).values())[-1]
    assert "together they win two draws of three" in PROSE
    assert 1 - float(drawn[shown].sum()) == pytest.approx(2 / 3, abs=0.03)
    drawn[shown] = 0
    assert drawn.max() < 0.01
