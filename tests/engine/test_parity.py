"""The engine computes what transformers computes."""

from __future__ import annotations

import pytest
import torch
import transformers
from engine import tiny

from llmlesson.engine.load import find_folder

TOLERANCE = dict(atol=1e-4, rtol=1e-4)

PROMPTS = [
    "Explain quantum computing like I'm ten.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "日本の首都はどこですか？ 🎉🎂 👩‍👩‍👧",
    "a",
]


@pytest.mark.parametrize("name", tiny.MODELS)
def test_prefill_and_every_decode_step_equal_transformers(name, tiny_pair, ids):
    engine, reference = tiny_pair(name)
    sequence = ids(90)  # passes the 32 positions from which llama3 scaling shows
    with torch.no_grad():
        expected = reference(torch.tensor([sequence])).logits[0]
    torch.testing.assert_close(engine.logits(sequence), expected, **TOLERANCE)

    cache = engine.new_cache(90)
    got = [engine.logits(sequence[:17], cache)[-1]]
    got += [engine.logits([token], cache)[-1] for token in sequence[17:]]
    torch.testing.assert_close(torch.stack(got), expected[16:], **TOLERANCE)


@pytest.mark.parametrize("name", ["gqa", "mqa", "qwen3"])
def test_the_first_token_and_the_next_are_the_most_likely_ones(name, tiny_pair, ids):
    engine, reference = tiny_pair(name)
    prompt = ids(20)
    with torch.no_grad():
        expected = reference.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
        )[0, 20:].tolist()
    cache, token = engine.prefill(prompt)
    got = [token]
    while len(got) < 12:
        cache, token = engine.decode(cache, token)
        got.append(token)
    assert got == expected


@pytest.fixture(scope="module")
def real_reference():
    folder = find_folder("smollm2-135m")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_equals_transformers_generate(prompt, real, real_reference):
    ids = real.tokenizer.chat(prompt)
    with torch.no_grad():
        output = real_reference.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)
    expected = output[0, len(ids) :].tolist()
    answer = real.generate(prompt, max_new_tokens=24)
    assert answer.token_ids == expected
    assert answer.text == real.tokenizer.decode(expected)


def test_the_known_answer(real):
    answer = real.generate("Explain quantum computing like I'm ten.", max_new_tokens=16)
    assert answer.text.startswith("In the realm of computing, I'm a quantum computing assistant designed to")
