"""How long a lesson takes, estimated from its contents; the notebook gate writes it into the lesson's head.

    python tools/lesson_time.py       one line for each lesson: what was counted, and the minutes that follow

Reading and running: 180 words and 15 lines of open code a minute, a minute and a half for each prediction. Exercises:
ten minutes each. Both are rounded up to five minutes. Nobody has been timed: the rates are estimates, and the same for
all lessons.
"""

import re
from math import ceil
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from cells import COLLAPSED, EXPLAIN, kind

WORDS, LINES, PREDICTION, EXERCISE = 180, 15, 1.5, 10  # a minute; a minute; minutes each; minutes each
STATED = re.compile(r"\*\*Time:\*\* [^*]*?\.(?= \*\*)")


class Count(NamedTuple):
    """The parts of a lesson that take time."""

    words: int
    lines: int  # of code that is open when a learner comes, without the stubs of exercises
    predictions: int
    exercises: int

    @property
    def reading(self) -> int:
        """Minutes to read and run."""
        return in_fives(self.words / WORDS + self.lines / LINES + PREDICTION * self.predictions)

    @property
    def solving(self) -> int:
        """Minutes for the exercises."""
        return in_fives(EXERCISE * self.exercises)

    @property
    def stated(self) -> str:
        """What the head of the lesson says."""
        exercises = "exercise" if self.exercises == 1 else "exercises"
        more = f", and {self.solving} for the {exercises}" if self.exercises else ""
        return f"**Time:** about {self.reading} minutes to read and run{more}."


def in_fives(minutes: float) -> int:
    return 5 * ceil(minutes / 5)


def count(notebook: NotebookNode) -> Count:
    kinds = [(kind(cell), cell.source) for cell in notebook.cells]
    words = sum(len(source.removeprefix(EXPLAIN).split()) for what, source in kinds if what in ("text", "explain"))
    code = [source for what, source in kinds if what not in COLLAPSED | {"text", "exercise"}]
    lines = sum(bool(line.strip()) for source in code for line in source.splitlines())
    asked = [what for what, _ in kinds]
    return Count(words, lines, asked.count("question"), asked.count("exercise"))


def main() -> None:
    for path in sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb")):
        c = count(nbformat.read(path, as_version=4))
        counted = f"{c.words:,} words, {c.lines} lines, {c.predictions} predictions, {c.exercises} exercises"
        print(f"{path.stem:20} {c.reading} + {c.solving} minutes: {counted}")


if __name__ == "__main__":
    main()
