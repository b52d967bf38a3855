"""Every exercise: the stub is "not done", each mistake is caught and named, right answers pass, luck does not."""

import json
import random
import re
from pathlib import Path

import pytest

from llmlesson import LessonError, lessons
from llmlesson.lessons.checking import check
from llmlesson.lessons.compare import copied
from llmlesson.lessons.exercise import exercise_names, find_exercise

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = exercise_names()
EXERCISES = {name: find_exercise(name) for name in NAMES}
MISTAKES = [(name, i) for name in NAMES for i in range(len(EXERCISES[name].mistakes))]
RIGHT = [(name, i) for name in NAMES for i in range(1 + len(EXERCISES[name].others))]
SEEDS = (1, 2)


class EqualsEverything:
    def __eq__(self, other):
        return True

    __hash__ = object.__hash__


@pytest.mark.parametrize("name", NAMES)
def test_the_stub_is_not_done(name):
    exercise = EXERCISES[name]
    assert check(name, exercise.build(exercise.stub)).status == "not done"
    assert exercise.stub.endswith("\n    return ...\n")
    for unfinished in ("raise NotImplementedError", "pass", "..."):
        answer = exercise.build(exercise.stub.replace("return ...", unfinished))
        assert check(name, answer).status == "not done"


@pytest.mark.parametrize(("name", "index"), MISTAKES)
def test_each_mistake_is_caught_and_named(name, index):
    exercise = EXERCISES[name]
    mistake = exercise.mistakes[index]
    assert mistake.source not in (exercise.solution, *exercise.others), "a replace() that replaced nothing"
    assert bool(mistake.means) != bool(mistake.says)
    for seed in SEEDS:
        report = check(name, exercise.build(mistake.source), seed=seed)
        assert report.status == "failed"
        assert (mistake.means or mistake.says) in repr(report)


@pytest.mark.parametrize(("name", "index"), RIGHT)
def test_right_answers_pass(name, index):
    exercise = EXERCISES[name]
    answer = exercise.build((exercise.solution, *exercise.others)[index])
    report = check(name, answer, seed=None)  # as a learner calls it
    assert report.passed, report


@pytest.mark.parametrize("name", NAMES)
def test_knowing_the_fixed_cases_is_not_enough(name):
    exercise = EXERCISES[name]
    solution = exercise.build(exercise.solution)
    known = {}

    def learn(*args):
        key = repr(args)
        known[key] = copied(solution(*args))
        return known[key]

    def recite(*args):
        return copied(known.get(repr(args), next(iter(known.values()))))

    for case in exercise.cases(random.Random(0)):
        if case.origin == "fixed":
            exercise.run(learn, *copied(case.args))
    if all(value is None for value in known.values()):
        pytest.skip("what counts is what it does, not what it returns")
    report = check(name, recite)
    assert report.status == "failed"
    assert report.failure.origin != "fixed"


@pytest.mark.parametrize("name", NAMES)
def test_a_result_that_equals_everything_passes_nothing(name):
    assert check(name, lambda *args: EqualsEverything()).status == "failed"


@pytest.mark.parametrize("name", NAMES)
def test_there_is_help_and_enough_to_check(name):
    exercise = EXERCISES[name]
    assert len(exercise.mistakes) >= 3
    assert len(exercise.others) >= 1
    hints, solution = lessons.hint(name), lessons.solution(name)
    assert repr(solution).endswith(exercise.solution.strip())
    assert all(hint in repr(hints) for hint in exercise.hints)
    assert all(
        shown._repr_mimebundle_()["text/html"].count("<details") == n for shown, n in ((hints, 2), (solution, 1))
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_has_the_stub_that_the_package_ships(name):
    exercise = EXERCISES[name]
    notebooks = sorted(NOTEBOOKS.glob(f"{exercise.lesson}_*.ipynb"))
    if not notebooks:
        pytest.skip(f"lesson {exercise.lesson} is not written yet")
    cells = ["".join(cell["source"]) for cell in json.loads(notebooks[0].read_text(encoding="utf-8"))["cells"]]
    expected = f'{exercise.stub.strip()}\n\n\nlessons.check("{name}", {exercise.function_name})'
    assert expected in cells
    assert any(f'lessons.hint("{name}")' in cell and f'lessons.solution("{name}")' in cell for cell in cells)


def test_the_notebooks_check_nothing_else():
    sources = [path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")]
    asked = {name for text in sources for name in re.findall(r'lessons\.(?:check|hint|solution)\(\\"([^\\]+)\\"', text)}
    assert asked <= set(NAMES)


def test_an_unknown_exercise_is_named_with_the_closest():
    with pytest.raises(LessonError, match=r"no exercise 'best-mrge'. Did you mean 'best-merge'\?"):
        lessons.check("best-mrge", print)
