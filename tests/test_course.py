"""The lessons as a course: links lead somewhere, the chain is whole, each says what it asks, terms are explained."""

import json
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

from lesson_time import count
from llmlesson.views.request_map import here

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
LESSONS = sorted(path.name for path in NOTEBOOKS.glob("[0-9][0-9]*_*.ipynb"))
GLOSSARY = NOTEBOOKS / "glossary.md"

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# Bold words that name a part of the lesson, and are no terms.
LABELS = {"You will be able to", "Predict", "Explain."}


def number(name):
    """Which lesson a notebook is: "02"; the second part of a lesson has a letter, "02b"."""
    return name.partition("_")[0]


def markdown_cells(name):
    cells = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def links(text):
    return LINK.findall(without_code(text))


def anchors(file):
    """The anchors of a Markdown file's headings, as web pages that render it make them."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def entries():
    """(heading, text) of each entry of the glossary."""
    parts = re.split(r"^## (.+)$", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def terms():
    return {term.casefold() for heading, _ in entries() for term in heading.split(", ")}


@pytest.mark.parametrize("name", [*LESSONS, GLOSSARY.name])
def test_links_lead_somewhere(name):
    texts = markdown_cells(name) if name.endswith(".ipynb") else [GLOSSARY.read_text(encoding="utf-8")]
    for target in (target for text in texts for target in links(text)):
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = NOTEBOOKS / path if path else NOTEBOOKS / name
        assert file.is_file(), f"{target}: there is no such file"
        assert not anchor or anchor in anchors(file), f"{target}: {file.name} has no such heading"


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_leads_to_its_neighbours_and_to_the_glossary(name):
    place = LESSONS.index(name)
    end = links(markdown_cells(name)[-1])
    neighbours = [*LESSONS[:place][-1:], *LESSONS[place + 1 :][:1]]
    for target in (*neighbours, GLOSSARY.name):
        assert target in end, f"the last cell has no link to {target}"


def test_numbers_are_unique():
    assert len(set(map(number, LESSONS))) == len(LESSONS)
    assert all(re.fullmatch(r"\d\d[b-z]?", number(name)) for name in LESSONS)


def test_a_second_part_comes_right_after_the_first():
    for before, name in pairwise(LESSONS):
        if number(name)[2:]:
            assert number(before)[:2] == number(name)[:2]


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_begins_with_its_number_question_and_time(name):
    first = markdown_cells(name)[0]
    assert first.startswith(f"# {number(name)} · ")
    assert re.search(r"\*\*The question\.\*\* .+\?", first)
    minutes = re.search(r"\*\*Time:\*\* about (\d+) minutes", first)
    assert minutes
    assert 15 <= int(minutes[1]) <= 40
    assert "**Know first:**" in first


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_asks_three_questions_with_folded_answers(name):
    end = markdown_cells(name)[-1]
    assert end.count("<details><summary>Answer</summary>") == end.count("</details>") == 3


def terms_in_bold(text):
    """All bold words but labels: **Time:**, **How far?**, **Predict.**, **"It is free"**. A term may end a sentence."""
    bold = (" ".join(word.split()) for word in re.findall(r"\*\*([^*]+)\*\*", without_code(text)))
    shown = [
        word for word in bold if not word.endswith((":", "?")) and not re.fullmatch(r'".*|(\d|[A-Z][^A-Z]).*\.', word)
    ]
    return [word.rstrip(".") for word in shown if word not in LABELS and word[0] != "▸"]


def unexplained(text, known):
    return [word for word in terms_in_bold(text) if not {word.casefold(), word.casefold().removesuffix("s")} & known]


@pytest.mark.parametrize("name", LESSONS)
def test_terms_in_bold_stand_in_the_glossary(name):
    unknown = unexplained("\n".join(markdown_cells(name)), terms())
    assert not unknown, "put these into glossary.md, or, if they are no terms, not in bold"


def test_a_bold_term_without_an_entry_is_found_wherever_it_is():
    text = "**Explain.**\nIt is a **new\nthing**, a **Token**, of **tokens.** Then **another.**\n"
    text += "- **Windows.** They\n- **MLA** is `**code**`. **Time:** 3 minutes"
    assert terms_in_bold(text) == ["new thing", "Token", "tokens", "another", "MLA"]
    assert unexplained(text, {"token", "mla"}) == ["new thing", "another"]


def test_the_glossary_is_sorted_and_each_term_stands_once():
    headings = [heading.casefold() for heading, _ in entries()]
    for before, after in pairwise(headings):
        assert before < after, f"{after!r} stands after {before!r}"
    assert len(terms()) == sum(len(heading.split(", ")) for heading in headings)


@pytest.mark.parametrize(("heading", "text"), entries(), ids=[heading for heading, _ in entries()])
def test_an_entry_is_short_and_names_a_lesson_that_uses_the_term(heading, text):
    definition, *rest = re.split(r"\[Lesson \d\d[b-z]?\]", text)
    assert len(rest) == 1, "ends with one link: [Lesson NN](NN_name.ipynb)"
    assert 1 <= len(re.findall(r"\.(?:\s|$)", definition)) <= 3
    [target] = links(text)
    if target in LESSONS:  # a lesson that is still being written has its terms here first; its link fails above
        lesson = " ".join(" ".join(markdown_cells(target)).split()).casefold()
        assert any(term.casefold() in lesson for term in heading.split(", "))


@pytest.mark.parametrize("name", LESSONS)
def test_the_readme_states_the_same_time(name):
    counted = count(nbformat.read(NOTEBOOKS / name, as_version=4))
    readme = (NOTEBOOKS.parent / "README.md").read_text(encoding="utf-8")
    assert f"(notebooks/{name}) | {counted.reading} + {counted.solving} minutes |" in readme


WHERE = {
    "01": ("Tokenizer",),
    "02": ("Prefill",),
    "02b": ("Prefill",),
    "03": ("Decode",),
    "03b": ("Decode",),
    "04": ("Prefill", "Decode"),
    "04b": ("Prefill", "Decode"),
    "05": ("Prefill", "Decode"),
    "05b": ("Prefill", "Decode"),
    "06": ("Prefill", "Decode"),
    "06b": ("Prefill", "Decode"),
    "07": ("Client", "LLM server", "Streaming response"),
    "07b": ("Client", "Load balancer", "LLM server", "Streaming response"),
}


@pytest.mark.parametrize("number", WHERE)
def test_the_head_of_a_lesson_says_where_on_the_map_it_is(number):
    [name] = [name for name in LESSONS if name.startswith(f"{number}_")]
    assert f"\n\n{here(*WHERE[number])}" in markdown_cells(name)[0]
