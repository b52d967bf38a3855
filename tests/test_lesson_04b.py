"""Numbers that lesson 04b states in words: they are those of the model and of the lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson.lessons.cache_lab import SECOND_TURN, STEPS, CacheLab
from llmlesson.lessons.exercises.mend_cache import BROKEN
from llmlesson.lessons.real import real_engine

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "04b_kv_cache_trust.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
RAW = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
PROSE = " ".join(RAW.split())
CODE = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code")


@pytest.fixture(scope="module")
def engine():
    return real_engine()


def test_the_second_turn(engine):
    first = engine.generate("What is the capital of France?", cache=engine.new_cache(128))
    conversation = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And of Italy?"},
    ]
    everything = engine.tokenizer.chat(conversation)
    assert f"whole conversation so far, {len(everything)} tokens" in PROSE
    left = len(everything) - first.cache.length
    assert f"{left}, not {left - 1}. {len(everything)} − {len(first.prompt_ids)} − {len(first.token_ids)} is" in PROSE
    assert f"a prompt of {len(first.prompt_ids)} tokens, and the answer is {len(first.token_ids)} tokens long" in PROSE
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
