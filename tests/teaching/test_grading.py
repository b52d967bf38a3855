"""The exam questions: what is printed as an answer is what their code computes, and the text agrees with it."""

import contextlib
import io
import re

import pytest
from teaching.documents import DOCS

import llmlesson
from llmlesson.lessons.real import real_engine

GUIDE = (DOCS / "grading.md").read_text(encoding="utf-8")
QUESTIONS = dict(re.findall(r"^### (\d · .+?)\n(.+?)(?=^##)", GUIDE, re.MULTILINE | re.DOTALL))


def block(text, language):
    return re.search(rf"^```{language}\n(.+?)^```", text, re.MULTILINE | re.DOTALL)[1]


def part(text, name):
    return re.search(rf"\*\*{name}\.\*\* (.+?)(?=\n\n```|\n\n\*\*|\Z)", text, re.DOTALL)[1]


def numbers(text):
    return set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text))


@pytest.mark.parametrize("title", QUESTIONS)
def test_the_code_prints_what_stands_there(title, monkeypatch):
    monkeypatch.setattr(llmlesson, "load", lambda dtype="float32": real_engine())  # loaded once for all
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block(QUESTIONS[title], "python"), title, "exec"), {"__name__": "question"})
    assert printed.getvalue() == block(QUESTIONS[title], "text")


@pytest.mark.parametrize("title", QUESTIONS)
def test_numbers_of_an_answer_are_given_or_computed(title):
    """Those with a decimal or more than two digits: none is made up."""
    text = QUESTIONS[title]
    question, answer = text.partition("**Answer.**")[0], part(text, "Answer")
    known = numbers(question) | numbers(block(text, "text")) | numbers(block(text, "python").replace("_", ","))
    own = {"2.1", "19.1", "4.1", "31,000", "135"} if title[0] in "28" else set()  # see the next test; a model's name
    exact = {number for number in numbers(answer) if len(number.replace(",", "")) > 2}
    assert exact - known <= own


def test_the_sums_that_only_the_answer_to_the_trace_has():
    assert f"{16_000 * 131_072 / 1e9:.1f} GB" == "2.1 GB"
    assert f"{16_000 * 131_072 / 15.0e9:.0%}" == "14%"
    assert f"{5.7e-3 * 3_350:.1f}" == "19.1"
    assert round((19.1 - 15.0) * 1e9 / 131_072, -3) == 31_000


@pytest.mark.parametrize("title", QUESTIONS)
def test_points_add_up_to_those_of_the_table(title):
    number = title[0]
    points = int(re.search(rf"^\| {number} \|.+\| (\d+) \|$", GUIDE, re.MULTILINE)[1])
    rubric = part(QUESTIONS[title], "Rubric")
    if title.startswith("2"):
        assert points == 2 * 3
        assert rubric.startswith("2 each")
    elif title.startswith("6"):
        assert rubric.startswith("1 each for (a) and (b)")
        assert "2 for (c)" in rubric
        assert points == 4
    else:
        assert sum(int(n) for n in re.findall(r"(?:^|; )(\d) ", rubric.replace("\n", " "))) == points
