"""Numbers that lesson 01 states in words: they are those of the model's tokenizer and of the lesson's own texts."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from llmlesson.lessons.real import real_engine, real_merges, real_tokenizer

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "01_tokenization.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
PROSE = " ".join(" ".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown").split())
PROMPT = "Explain quantum computing like I'm ten."


@pytest.fixture(scope="module")
def tokenizer():
    return real_tokenizer()


@pytest.fixture(scope="module")
def article():
    """The lesson's texts by language."""
    [source] = ["".join(cell["source"]) for cell in CELLS if cell["id"] == "scripts"]
    value = next(node.value for node in ast.parse(source).body if isinstance(node, ast.Assign))
    return ast.literal_eval(value)


def test_the_languages(tokenizer, article):
    counts = {language: len(tokenizer.encode(text)) for language, text in article.items()}
    fits = {language: len(text.encode()) / counts[language] for language, text in article.items()}
    assert len(article) == 11
    assert "eleven languages" in PROSE
    assert f"In English it is {counts['English']} tokens." in PROSE
    assert f"English gets {fits['English']:.1f} bytes into a token, Tamil {fits['Tamil']:.1f}, Amharic 1.0" in PROSE
    assert counts["Amharic"] == len(article["Amharic"].encode())  # "not one merge applied"
    assert len(article["Swahili"]) < len(article["English"])
    assert article["Swahili"].isascii()
    assert f"still {counts['Swahili'] / counts['English']:.1f} times the tokens" in PROSE
    assert len(article["English"]) / len(article["Chinese"]) == pytest.approx(
        4, abs=0.1
    )  # "a quarter of the characters"
    assert max(counts, key=counts.get) == "Tamil"
    assert f"takes {counts['Tamil'] / counts['English']:.1f} times the tokens" in PROSE
    assert f"only {len(article['Tamil']) / len(article['English']):.1f} times the characters" in PROSE
    letters = {language: [c for c in text if c.isalpha()] for language, text in article.items()}
    assert all(len(c.encode()) == 2 for language in ("Russian", "Arabic") for c in letters[language])
    assert all(len(c.encode()) == 3 for language in ("Tamil", "Chinese") for c in letters[language])


def test_tokens_that_are_named(tokenizer):
    def cut(text):
        return [tokenizer.decode([i]) for i in tokenizer.encode(text)]

    assert tokenizer.encode(" quantum") == [8671]
    assert "the number 8671" in PROSE
    assert len(b" quantum") == 8  # "Eight bytes, seven merges": a token is one merge less than its bytes
    assert cut("strawberry") == ["st", "raw", "berry"]
    assert len(cut(" STRAWBERRY")) == 5
    assert cut(" 2024") == [" ", "2", "0", "2", "4"]
    assert cut("x:\n    y") == ["x", ":", "\n   ", " y"]
    assert len(cut("🍵")) == 3
    assert len(tokenizer.encode(PROMPT)) == 8
    assert len(tokenizer.chat(PROMPT)) == 38
    assert "Your prompt is 8 tokens, and 38 go into the model." in PROSE


def test_special_tokens_come_from_no_merge(tokenizer):
    made = {left + right for left, right in real_merges()}
    assert not made & set(tokenizer.special_tokens)
    whole = tokenizer.chat(PROMPT)
    spelled = [tokenizer.decode([i], special=True) for i in whole]
    assert spelled[-3:] == ["ass", "istant", "\n"]
    assert " assistant" in spelled


def test_the_bytes_that_are_missing(tokenizer):
    present = {tokenizer.token(i) for i in range(tokenizer.vocab_size)}
    singles = [token for token in present if len(token) == 1]
    assert f"{256 - len(singles)} bytes have no token" in PROSE
    assert tokenizer.decode(tokenizer.encode("a\x16b")) == "ab"


def test_the_context():
    assert f"is {real_engine().config.max_position_embeddings:,}," in PROSE


def test_the_try_after_the_trailing_space_has_a_point():
    answer = real_engine().generate("The capital of France is P", chat=False, max_new_tokens=2).text
    assert not answer.startswith("aris")
