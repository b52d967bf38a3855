"""Which replica gets the next request: the one with the fewest requests that have not ended."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from llmlesson.lessons.exercise import Case, Exercise, Mistake

STUB = '''
def choose_replica(running, up, limit, last):
    """Which replica gets the next request: its index, or None if the request has to wait.

    running: for each replica, how many requests it has now. up: for each, whether it is up (a list of bools).
    limit: the most requests that a replica may have. last: the index of the one that was chosen before, -1 at first.
    Choose the replica with the fewest, among those that are up and below the limit. Where several have the fewest, take
    the first of them behind `last`, going round.
    """
    return ...
'''

SOLUTION = """
def choose_replica(running, up, limit, last):
    count = len(running)
    in_turn = [(last + 1 + step) % count for step in range(count)]
    free = [i for i in in_turn if up[i] and running[i] < limit]
    return min(free, key=lambda i: running[i], default=None)
"""

BY_LOOP = """
def choose_replica(running, up, limit, last):
    best = None
    for step in range(1, len(running) + 1):
        i = (last + step) % len(running)
        if not up[i] or running[i] >= limit:
            continue
        if best is None or running[i] < running[best]:
            best = i
    return best
"""

BY_SORTING = """
def choose_replica(running, up, limit, last):
    n = len(running)
    ranked = sorted((load, (i - last - 1) % n, i) for i, load in enumerate(running) if up[i] and load < limit)
    return ranked[0][2] if ranked else None
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace("min(free, key=lambda i: running[i], default=None)", "free[0] if free else None"),
        "You took turns, whatever each replica has to do. Choose the one with the fewest requests.",
    ),
    Mistake(
        SOLUTION.replace("min(free", "max(free"),
        "You chose the busiest replica.",
    ),
    Mistake(
        SOLUTION.replace("up[i] and ", ""),
        "A replica that is down has no requests, so it looks like the least busy one: it would get everything.",
    ),
    Mistake(
        SOLUTION.replace(" and running[i] < limit", ""),
        "All that were up had reached the limit. Then the request waits, and the first replica to be free gets it.",
    ),
    Mistake(
        SOLUTION.replace("running[i] < limit", "running[i] <= limit"),
        "A replica at its limit takes no more: below the limit means less than it.",
    ),
    Mistake(
        SOLUTION.replace("(last + 1 + step) % count", "step"),
        "Where several had the fewest you always took the first. While all idle, one would do everything.",
    ),
    Mistake(
        SOLUTION.replace("(last + 1 + step)", "(last + step)"),
        "Where several had the fewest you took the one that was chosen before. Begin behind it.",
    ),
    Mistake(
        SOLUTION.replace(
            "in_turn = [(last + 1 + step) % count for step in range(count)]", "in_turn = list(range(last + 1, count))"
        ),
        "You looked behind `last` only. Go round: behind the last replica comes the first.",
    ),
    Mistake(
        SOLUTION.replace("return min(free", "running = [n for n, u in zip(running, up) if u]\n    return min(free"),
        says="IndexError",
    ),
    Mistake(SOLUTION.replace(", default=None", ""), says="ValueError"),
    Mistake(SOLUTION.replace("default=None", "default=-1"), says="None is expected"),
    Mistake(
        SOLUTION.replace("return min", "best = min")
        + "    if best is not None:\n        running[best] += 1\n    return best\n",
        says="changed its input",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    yield Case(([3, 1], [True, True], 8, 0), 1)
    yield Case(([1, 3], [True, True], 8, 1), 0)
    yield Case(([1, 3], [True, True], 8, 0), 0)
    yield Case(([5, 2, 4], [True, True, True], 8, 1), 1)
    yield Case(([3, 0], [True, False], 8, 0), 0)
    yield Case(([0, 0], [True, True], 8, 1), 0)
    yield Case(([0, 0], [True, True], 8, 0), 1)
    yield Case(([0, 0, 0], [True, True, True], 8, -1), 0)
    yield Case(([9, 9], [True, True], 8, 0), None)
    yield Case(([8, 8], [True, True], 8, 0), None)
    yield Case(([2, 9, 2], [True, True, True], 8, 0), 2)
    yield Case(([1, 0], [False, False], 8, 0), None)
    yield Case(([0, 4, 4], [False, True, True], 8, 1), 2)
    for _ in range(60):
        count = rng.randrange(1, 6)
        running = [rng.randrange(4) for _ in range(count)]
        up = [rng.random() < 0.8 for _ in range(count)]
        limit, last = rng.randrange(1, 5), rng.randrange(-1, count)
        yield Case((running, up, limit, last), by_trying(running, up, limit, last), origin="random")


def by_trying(running: Sequence[int], up: Sequence[bool], limit: int, last: int) -> int | None:
    """Ask for each number of requests, from none on, who has just as many."""
    for load in range(limit):
        place = last
        for _ in running:
            place = place + 1 if place + 1 < len(running) else 0
            if up[place] and running[place] == load:
                return place
    return None


EXERCISE = Exercise(
    lesson="07b",
    stub=STUB,
    hints=(
        "Two questions, one after the other: which replicas may get it at all, and which of those has the fewest? In "
        "what order do you have to look at them, so that a tie goes to the next one in turn?",
        "[(last + 1 + step) % len(running) for step in range(len(running))] are the indexes in turn. Keep those that "
        "are up and below the limit; min(…, key=lambda i: running[i], default=None) takes the first of the fewest.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_LOOP, BY_SORTING),
)
