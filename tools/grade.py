"""Autogrades an nbgrader assignment, with each hand-in in its own sandbox:

    python tools/grade.py COURSE 03_decode

Autograding runs learners' code. Under plain `nbgrader autograde` that code has your rights: it can read your files,
other learners' work and the gradebook, and use the network. Here it sees Python, the model, and a copy of the course
that holds a single hand-in. It has no network, and whatever it starts ends with it.

COURSE is the folder of the nbgrader course. Writes graded/03_decode/NAME/ in it, with the learner's autograded notebook
and feedback, and graded/03_decode.csv with the scores. Needs Linux, nbgrader in this Python, and bubblewrap
(apt install bubblewrap).
"""

import argparse
import csv
import glob
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import llmlesson
from llmlesson import LessonError
from llmlesson.files.fetch import ensure_default_model

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache")
STEPS = ("generate_assignment", "autograde", "generate_feedback")


def sandbox(command: Sequence[str], box: Path) -> list[str]:
    """Run `command` with bubblewrap in the folder `box`, the only one that it can write to, without a network.

    It can read the system's programs and libraries, this Python, the course's package and the model.
    """
    package, model = Path(llmlesson.__file__).parent, ensure_default_model()
    shown = [*map(Path, SYSTEM), Path(sys.prefix), Path(sys.base_prefix), package, model]
    settings = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "grader",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package.parent),
        "LLMLESSON_HOME": str(model.parents[1]),
    }
    return [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--tmpfs", "/tmp"),
        *(word for path in shown for word in ("--ro-bind-try", str(path), str(path))),
        *(word for name, value in settings.items() for word in ("--setenv", name, value)),
        *("--proc", "/proc", "--dev", "/dev", "--bind", str(box), str(box), "--chdir", str(box), *command),
    ]


def grade(course: Path, assignment: str, hand_in: Path) -> tuple[str, str]:
    """(score, best score) of one hand-in. Raises LessonError if nbgrader fails, or exports something else."""
    learner = hand_in.parent.name
    box = course / "graded" / assignment / learner
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    shutil.copy(course / "nbgrader_config.py", box)
    shutil.copytree(course / "source" / assignment, box / "source" / assignment)
    shutil.copytree(hand_in, box / "submitted" / learner / assignment, symlinks=True)
    commands = [*(f'nbgrader {step} "$1"' for step in STEPS), "nbgrader export --to grades.csv"]
    command = sandbox(["sh", "-c", " && ".join(commands), "sh", assignment], box)
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    exported = box / "grades.csv"
    if ran.returncode or exported.is_symlink() or not exported.is_file():
        raise LessonError(f"{learner}: nbgrader failed.\n{ran.stderr.strip()[-2000:]}")
    return score(exported, learner, assignment)


def score(exported: Path, learner: str, assignment: str) -> tuple[str, str]:
    """Reads only this learner's row: their code could have written rows for others."""
    with exported.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["student_id"], row["assignment"]) == (learner, assignment)]
    if len(rows) != 1:
        raise LessonError(f"{learner}: nbgrader exported {len(rows)} scores instead of one. See {exported}.")
    return rows[0]["score"], rows[0]["max_score"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Autograde an nbgrader assignment, each hand-in in its own sandbox.")
    parser.add_argument("course", type=Path, metavar="COURSE", help="the folder of the nbgrader course")
    parser.add_argument("assignment", metavar="ASSIGNMENT", help="its folder's name, such as 03_decode")
    options = parser.parse_args(arguments)
    course, assignment = options.course.resolve(), options.assignment
    hand_ins = sorted(course.glob(f"submitted/*/{glob.escape(assignment)}"))
    try:
        for program in ("bwrap", "nbgrader"):
            if not shutil.which(program):
                raise LessonError(
                    f"There is no program {program}. Install nbgrader (pip) and bubblewrap (apt; Linux only)."
                )
        if not (course / "source" / assignment).is_dir() or not hand_ins:
            raise LessonError(f"No hand-ins for {assignment}. Give the folder of the nbgrader course first.")
        rows = [("learner", "score", "best")]
        for hand_in in hand_ins:
            rows.append((hand_in.parent.name, *grade(course, assignment, hand_in)))
            print(*rows[-1], sep="\t", flush=True)
    except LessonError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 1
    with (course / "graded" / f"{assignment}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
