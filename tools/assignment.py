"""Lessons as assignments for nbgrader.

    python tools/assignment.py COURSE [LESSON ...]     e.g. python tools/assignment.py ~/course 03 06

Writes COURSE/source/03_decode/03_decode.ipynb and so on; without LESSON, every lesson that has exercises. In the copy

- the cell of an exercise is a solution cell: the package's solution is between BEGIN SOLUTION and END SOLUTION, and
  `nbgrader generate_assignment` removes it again;
- a locked cell after it, worth one point, runs the same check with fixed seeds;
- the cell below shows the hints, but no longer the solution.

The lessons themselves stay unchanged, with no trace of nbgrader.
"""

import argparse
import ast
import os
import re
import sys
import textwrap
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from llmlesson import LessonError
from llmlesson.lessons.exercise import find_exercise

LESSONS = Path(__file__).resolve().parent.parent / "notebooks"
CHECK = re.compile(r'^lessons\.check\("([\w-]+)", (\w+)\)$', re.MULTILINE)
SOLUTION = re.compile(r'^display\((lessons\.hint\("[\w-]+"\)), lessons\.solution\("[\w-]+"\)\)$', re.MULTILINE)
SEEDS = (1, 2, 3)  # of the random cases: the same for everyone, and for a second run
NOTE = (
    "**This copy is graded.** Put your code where it says *YOUR CODE HERE*, in place of the line below it, and run the "
    "cell: the check says what is right and what isn't. The locked cell behind it runs the same check for the grade."
)


def assignment(lesson: NotebookNode) -> NotebookNode:
    """The lesson as nbgrader wants it in `source/`: no outputs, exercises marked and graded."""
    copy = nbformat.v4.new_notebook(metadata=lesson.metadata, nbformat_minor=lesson.nbformat_minor)
    for cell in lesson.cells:
        cell = nbformat.from_dict(cell)
        copy.cells.append(cell)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        cell.source = SOLUTION.sub(r"\1", cell.source)
        if found := CHECK.search(cell.source):
            name, function = found.groups()
            cell.source = f"{with_solution(name)}\n\n\n{found[0]}"
            mark(cell, name, solution=True)
            test = nbformat.v4.new_code_cell(graded_check(name, function), id=f"{cell.id}-points")
            mark(test, f"{name}-points", grade=True, locked=True, points=1)
            copy.cells.append(test)
    copy.cells.insert(1, nbformat.v4.new_markdown_cell(NOTE, id="graded-copy"))
    return copy


def mark(cell: NotebookNode, grade_id: str, **given: bool | int) -> None:
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": grade_id,
        "cell_type": "code",
        "solution": False,
        "grade": False,
        "locked": False,
        "task": False,
        **given,
    }


def graded_check(name: str, function: str) -> str:
    return (
        "from llmlesson import lessons\n\n"
        f"for seed in {SEEDS}:\n"
        f'    report = lessons.check("{name}", {function}, seed=seed)\n'
        "    assert report.passed, report"
    )


def with_solution(name: str) -> str:
    """The stub of an exercise, each function filled with its body in the solution, between nbgrader's marks."""
    exercise = find_exercise(name)
    solution = exercise.solution.strip().splitlines()
    imports = [node for node in ast.parse(exercise.solution).body if isinstance(node, ast.Import)]
    bodies = {path: lines_of(node.body, solution) for path, node in functions(ast.parse("\n".join(solution)))}
    lines = exercise.stub.strip().splitlines()
    for path, node in reversed(
        functions(ast.parse("\n".join(lines)))
    ):  # from the bottom up, so that line numbers stay right
        body = bodies[path]
        needed = [ast.unparse(line) for line in imports if f"{line.names[0].name}." in body]
        marked = ["### BEGIN SOLUTION", *needed, *body.splitlines(), "### END SOLUTION"]
        first = node.body[0]
        keep = lines[node.lineno - 1 : first.lineno - 1]
        if ast.get_docstring(node):
            keep = lines[node.lineno - 1 : first.end_lineno]
        elif first.lineno == node.lineno:  # def f(): ...
            keep = [lines[node.lineno - 1][: first.col_offset].rstrip()]
        indent = " " * (node.col_offset + 4)
        lines[node.lineno - 1 : node.end_lineno] = [*keep, *textwrap.indent("\n".join(marked), indent).splitlines()]
    return "\n".join(lines)


def functions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef]]:
    """(path, node) of each function at the top and of each method, in the order of the source."""
    found = []
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        found += [(f"{node.name}.{method.name}", method) for method in inner if isinstance(method, ast.FunctionDef)]
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, node))
    return found


def lines_of(body: list[ast.stmt], source: list[str]) -> str:
    return textwrap.dedent("\n".join(source[body[0].lineno - 1 : body[-1].end_lineno]))


def has_exercises(lesson: NotebookNode) -> bool:
    return any(CHECK.search(cell.source) for cell in lesson.cells)


def write(course: Path, numbers: list[str]) -> list[Path]:
    """Write the assignments. Before anything is written, raises LessonError for unknown lessons and existing files."""
    wanted = {}
    for path in sorted(LESSONS.glob("[0-9][0-9]*_*.ipynb")):
        lesson = nbformat.read(path, as_version=4)
        if has_exercises(lesson):
            wanted[path.name.partition("_")[0]] = (course / "source" / path.stem / path.name, lesson)
    unknown = [number for number in numbers if number not in wanted]
    if unknown:
        raise LessonError(f"No lesson with exercises: {', '.join(unknown)}. They are: {', '.join(wanted)}.")
    chosen = [wanted[number] for number in numbers or wanted]
    there = [path for path, _ in chosen if path.exists()]
    if there:
        raise LessonError(f"Already there: {', '.join(map(str, there))}. Remove it first to make it again.")
    for path, lesson in chosen:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(nbformat.writes(assignment(lesson)) + "\n", encoding="utf-8", newline="\n")
        os.replace(new, path)
    return [path for path, _ in chosen]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write lessons as nbgrader assignments.")
    parser.add_argument("course", type=Path, metavar="COURSE", help="the folder of the nbgrader course")
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="numbers such as 03; else all that have exercises")
    options = parser.parse_args(arguments)
    try:
        for path in write(options.course, options.lessons):
            print(path)
    except LessonError as error:
        print(f"assignment: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
