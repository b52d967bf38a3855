"""Lessons as nbgrader assignments: marked and graded as nbgrader wants it, with nothing given away."""

import ast
import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

from llmlesson import lessons
from llmlesson.lessons.exercise import exercise_names, find_exercise

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("assignment", ROOT / "tools" / "assignment.py")
assignment = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(assignment)

NAMES = exercise_names()
REGION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder with all assignments."""
    folder = tmp_path_factory.mktemp("course")
    assert assignment.main([str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def copies(course):
    return {path.stem: nbformat.read(path, as_version=4) for path in sorted(course.glob("source/*/*.ipynb"))}


def cleared(source):
    """As nbgrader hands it out."""
    return REGION.sub(r"\1# YOUR CODE HERE\n\1raise NotImplementedError()", source)


def marked(copy):
    return {cell.metadata.nbgrader.grade_id: cell for cell in copy.cells if "nbgrader" in cell.metadata}


def bodies(source):
    """What the functions and methods of a source do: without docstrings, and without their imports."""
    found = {}
    for path, node in assignment.functions(ast.parse(source)):
        body = node.body[1:] if ast.get_docstring(node) else node.body
        found[path] = [ast.dump(statement) for statement in body if not isinstance(statement, ast.Import)]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_with_its_marks_an_exercise_is_the_solution_and_without_them_not_done(name):
    exercise, source = find_exercise(name), assignment.with_solution(name)
    assert bodies(source) == bodies(exercise.solution)
    handed_out = cleared(source)
    assert "SOLUTION" not in handed_out
    assert "import" not in handed_out
    assert lessons.check(name, exercise.build(handed_out), seed=1).status == "not done"
    assert exercise.build(handed_out).__doc__ == exercise.build(exercise.stub).__doc__


@pytest.mark.parametrize("name", ["causal-mask", "kv-cache", "choose-kv-heads"])  # a function, a class, no import
def test_with_its_marks_an_exercise_passes(name):
    assert lessons.check(name, find_exercise(name).build(assignment.with_solution(name)), seed=1).passed


def test_each_exercise_is_graded_once_for_one_point(copies):
    graded = [cell for copy in copies.values() for cell in marked(copy).values() if cell.metadata.nbgrader.grade]
    assert [cell.metadata.nbgrader.points for cell in graded] == [1] * len(NAMES)
    assert all(cell.metadata.nbgrader.locked and not cell.metadata.nbgrader.solution for cell in graded)
    assert {re.search(r'check\("([\w-]+)"', cell.source)[1] for cell in graded} == set(NAMES)
    for stem, copy in copies.items():
        lesson = stem.partition("_")[0]
        assert {find_exercise(name).lesson for name in marked(copy) if not name.endswith("-points")} == {lesson}


def test_the_grading_cell_stands_right_behind_its_exercise(copies):
    for copy in copies.values():
        order = [cell.metadata.nbgrader.grade_id for cell in copy.cells if "nbgrader" in cell.metadata]
        assert order == [grade_id for name in order[::2] for grade_id in (name, f"{name}-points")]
        assert all(f'lessons.check("{name}", ' in marked(copy)[name].source for name in order[::2])


def test_the_grading_cell_is_complete_in_itself_and_says_what_is_wrong(copies):
    exercise, test = find_exercise("causal-mask"), marked(copies["02b_prefill_cost"])["causal-mask-points"].source
    exec(test, {"causal_mask": exercise.build(exercise.solution)})
    with pytest.raises(AssertionError, match="not done yet"):
        exec(test, {"causal_mask": exercise.build(exercise.stub)})
    with pytest.raises(AssertionError, match="nothing is causal about that"):
        exec(test, {"causal_mask": exercise.build(exercise.mistakes[0].source)})


def test_nothing_is_given_away(copies):
    for copy in copies.values():
        nbformat.validate(copy)
        for cell in copy.cells:
            assert not cell.get("outputs")
            assert "lessons.solution(" not in cell.source
        hints = [cell for cell in copy.cells if "lessons.hint(" in cell.source]
        assert len(hints) == len(marked(copy)) / 2


def test_the_lessons_know_nothing_of_nbgrader():
    assert not [path.name for path in assignment.LESSONS.glob("*.ipynb") if "nbgrader" in path.read_text("utf-8")]


def test_what_is_there_is_not_overwritten(course, capsys):
    [path] = course.glob("source/*/03_decode.ipynb")
    before = path.stat().st_mtime_ns
    assert assignment.main([str(course), "03"]) == 1
    assert "Already there" in capsys.readouterr().err
    assert path.stat().st_mtime_ns == before


def test_a_lesson_without_exercises_is_named_and_nothing_is_written(tmp_path, capsys):
    assert assignment.main([str(tmp_path), "03", "99"]) == 1
    assert "No lesson with exercises: 99. They are: 00, 01, 02, 02b, 03, 03b" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_nbgrader_grades_it(copies, tmp_path):
    """A right answer, a known mistake and an untouched stub, through all of nbgrader; with the exercises alone."""
    pytest.importorskip("nbgrader", reason="needs nbgrader, which the course does not install")
    from nbgrader.api import Gradebook
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    name, unit = "kv-bytes", "05_kv_cache_size"
    config = Config()
    config.CourseDirectory.root, config.CourseDirectory.course_id = str(tmp_path), "course"
    api, copy = NbGraderAPI(config=config), copies[unit]
    graded = marked(copy)
    copy.cells = [nbformat.v4.new_code_cell("from llmlesson import lessons"), graded[name], graded[f"{name}-points"]]
    put(copy, tmp_path / "source" / unit / f"{unit}.ipynb")
    assert api.generate_assignment(unit)["success"]
    released = tmp_path / "release" / unit / f"{unit}.ipynb"
    exercise = find_exercise(name)
    for student, answer in {"right": exercise.solution, "wrong": exercise.mistakes[2].source, "none": None}.items():
        work = nbformat.read(released, as_version=4)
        if answer:
            marked(work)[name].source = answer
        put(work, tmp_path / "submitted" / student / unit / f"{unit}.ipynb")
        assert api.autograde(unit, student)["success"]
        assert api.generate_feedback(unit, student)["success"]
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as gradebook:
        scores = {entry.student.id: entry.score for entry in gradebook.assignment_submissions(unit)}
    assert scores == {"right": 1, "wrong": 0, "none": 0}
    feedback = (tmp_path / "feedback" / "wrong" / unit / f"{unit}.html").read_text("utf-8")
    assert exercise.mistakes[2].means[:30] in feedback


def put(notebook, path):
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
