"""The exercises of the lessons: `check` an answer, get a `hint`, see a `solution`.

    lessons.use(engine)                              # the engine of this lesson, which checks ask too
    lessons.check("best-merge", apply_best_merge)    # runs your function on cases and says what came out
    lessons.hint("best-merge")                       # two hints, folded
    lessons.solution("best-merge")                   # ours, folded
    lessons.my_engine()                              # an engine made of your functions that passed (my_engine.py)

To add an exercise, write one file, `llmlesson/lessons/exercises/<name_with_underscores>.py`; nothing else needs to know
about it. It defines `EXERCISE = Exercise(...)` (see `llmlesson.lessons.exercise`, and `exercises/best_merge.py` as an
example), where each answer is the source of one function of the same name and parameters:

- `lesson`: "01", the number that its notebook's name begins with;
- `stub`: the code in the notebook, with a docstring and, as its last line, `return ...`;
- `hints`: two, the first on what to think about, the second on how to begin;
- `solution`, and `others`: right answers that are written differently;
- `mistakes`: what people really get wrong. If a learner's answers equal those of a mistake, up to and including the
  first wrong case, its `means` says what that usually means. If a general message already says so (the input was
  changed, the type is wrong, it raised), leave `means` empty and put a piece of that message into `says`;
- `cases(rng)`: yields `Case(args, expected)`, the most telling first. First fixed ones, with results that a person can
  check by eye, and `means` if a failure says something. Then `origin="random"` ones, made with `rng` (a
  `random.Random`; for tensors seed a `torch.Generator` with `rng.getrandbits(32)`), whose results come from something
  other than the solution: a library, the engine, brute force. Then `origin="real model"` ones where it matters, with
  `real_engine()` or `real_tokenizer()`. It is a generator, so expensive cases are made only if all earlier ones pass;
- `run(function, *args)`: what to do with the function if calling it once with `args` isn't enough: a loop that calls
  it, or a fake engine that notes how it is called. What it returns is compared.

In the notebook an exercise is two code cells. The first is the stub, two empty lines and `lessons.check("name",
function)`; it is tagged `nbval-check-output`, and so is the second, `display(lessons.hint("name"),
lessons.solution("name"))`. `tests/lessons/test_exercises.py` then checks, with no further code, that the stub is
"not done", that each mistake is caught and named, that the solution and the others pass, that an answer which knows the
fixed cases by heart fails, and that the notebook's stub is the package's.
"""

from llmlesson.lessons.checking import check
from llmlesson.lessons.help import hint, solution
from llmlesson.lessons.own_engine import my_engine
from llmlesson.lessons.real import use

__all__ = ["check", "hint", "my_engine", "solution", "use"]
