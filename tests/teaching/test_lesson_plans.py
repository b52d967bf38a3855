"""The instructor's pages say what the lessons say: each question, each answer, each number, each step."""

import re

import pytest
from teaching.documents import LESSONS, PLANS, cells, cells_by_part, plan, table

from cells import COMMENTS, EXPLAIN
from llmlesson.lessons.cache_lab import PATIENTS
from llmlesson.lessons.exercise import exercise_names, find_exercise

SIGNS = COMMENTS.values()  # what is shown in place of a collapsed source
SAME_EVERYWHERE = "nbval-check-output"
KNOWN = ("Measured: ", "Computed: ")  # what begins an answer


def plain(text):
    """Without line breaks and marks, which differ between a notebook and a page."""
    return " ".join(re.sub(r"</?code>|[`*\\]", "", text).split())


def outputs(cell):
    for output in cell.get("outputs", []):
        yield "".join(output.get("text", output.get("data", {}).get("text/plain", "")))


def predictions(lesson):
    """(question, answer, whether it is the same on every machine); an answer that is not stored is None."""
    open_questions, found = [], []
    for cell in cells(lesson):
        source = "".join(cell["source"])
        shown = list(outputs(cell))
        for answer in (text for text in shown if text.startswith(KNOWN)):
            found.append((open_questions.pop(0), answer, SAME_EVERYWHERE in cell["metadata"].get("tags", ())))
        if (
            ".reveal(" in source
            and "def " not in source.partition(".reveal(")[2]
            and not any(text.startswith(KNOWN) for text in shown)
        ):
            found.append((open_questions.pop(0), None, False))
        open_questions += [text[9:].split("\n")[0] for text in shown if text.startswith("Predict. ")]
    assert not open_questions
    return found


def check_yourself(lesson):
    """(question, answer) of the last cell."""
    end = "".join(cells(lesson)[-1]["source"])
    return [
        (plain(question), plain(answer))
        for question, answer in re.findall(
            r"^(\d\. .+?)\n\n<details><summary>Answer</summary>(.+?)</details>", end, re.MULTILINE | re.DOTALL
        )
    ]


def estimate(part):
    """Minutes: 180 words and 15 lines of code a minute, a minute and a half for a vote."""
    sources = {kind: ["".join(c["source"]) for c in part if c["cell_type"] == kind] for kind in ("markdown", "code")}
    words = sum(len(text.split()) for text in sources["markdown"] if text != EXPLAIN)
    lines = sum(bool(line.strip()) for text in sources["code"] for line in text.splitlines() if line not in SIGNS)
    votes = sum("Prediction(" in text for text in sources["code"])
    return words / 180 + lines / 15 + 1.5 * votes


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_prediction_stands_in_the_plan_with_its_true_answer(lesson):
    rows = table(plan(lesson), "they predict")
    assert [plain(row[0]) for row in rows] == [plain(question) for question, *_ in predictions(lesson)]
    for (_, given, means), (_, stored, everywhere) in zip(rows, predictions(lesson), strict=True):
        assert given.startswith("† ") != everywhere, "† marks what may differ from machine to machine"
        if stored:
            assert re.match(rf"(Measured|Computed): {re.escape(plain(given.removeprefix('† ')))}\b", plain(stored))
        else:
            assert "measured on the spot" in given
        assert means


@pytest.mark.parametrize("lesson", LESSONS)
def test_questions_and_answers_are_those_of_the_lesson(lesson):
    text = plan(lesson).partition("**Check yourself**")[2]
    assert f"](../notebooks/{LESSONS[lesson].name})" in text.splitlines()[0]
    given = re.findall(r"^> (.+?)\n\n(.+?)\n\n\*A wrong answer shows:\* (.+?)(?=\n\n|\n*\Z)", text, re.DOTALL | re.M)
    assert [(plain(question), plain(answer)) for question, answer, _ in given] == check_yourself(lesson)


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_exercise_is_placed_in_class_or_at_home(lesson):
    wanted = {name for name in exercise_names() if find_exercise(name).lesson == lesson}
    rows = table(plan(lesson), "exercise") if wanted else []
    assert {row[0].strip("`") for row in rows if row[0].startswith("`")} == wanted
    for _, minutes, where, mistakes in rows:
        assert 3 <= int(minutes) <= 15
        assert re.match(r"class|home", where)
        assert mistakes


@pytest.mark.parametrize("lesson", LESSONS)
def test_minutes_are_what_the_page_says_they_are(lesson):
    rows = {name: int(minutes) for name, minutes, _ in table(plan(lesson), "part")}
    apart = {"", "Setup", "Recap", "Check yourself", "What comes next"}
    found = {name: part for name, part in cells_by_part(lesson).items() if name not in apart}
    found = {name: part for name, part in found.items() if not name.startswith("Exercise")}
    assert list(rows) == ["Setup", *found, "End"]
    for name, part in found.items():
        assert 0 <= rows[name] - estimate(part) <= 1.5, f"{name}: {estimate(part):.1f} minutes"


@pytest.mark.parametrize("lesson", LESSONS)
def test_numbers_stand_in_the_lesson(lesson):
    """All but minutes and seconds, and the numbers of lists, steps and lessons."""
    text = re.sub(r"\]\(.+?\)", "]", plan(lesson).replace("**", ""))  # without the addresses of links
    text = re.sub(r"Waiting: .+|^\| (Setup|Step|End|Why|GB|Break).*\||^(## |> )\d+|\|  *\d+ \|", "", text, flags=re.M)
    text = re.sub(r"(Steps?|[Ll]essons?|and|Part) \d+|\d+ minutes", "", text)
    known = " ".join("".join(cell["source"]) + " ".join(outputs(cell)) for cell in cells(lesson))
    known = {number.replace(",", "") for number in re.findall(r"\d[\d,]*\.?\d*", known)} | {"2", "3", "4", "9"}
    wrong = {"79"}  # given as a wrong answer
    unknown = {n.replace(",", "").rstrip(".") for n in re.findall(r"\d[\d,]*\.?\d*", text)}
    known |= {number.rstrip(".") for number in known}
    assert unknown - known <= wrong


def test_the_ward_is_answered():
    answers = re.search(r"The ward's answers: (.+)\.", PLANS)[1]
    assert dict(re.findall(r"([A-H]) `([\w-]+)`", answers)) == PATIENTS
