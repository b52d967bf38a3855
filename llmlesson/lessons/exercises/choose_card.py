"""Plan a small service: the cheapest card that is large enough and fast enough."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.sizing import Attention, Layer, fit, gpu_table, kv_cache, max_sequences, model_weights

STUB = '''
def choose_card(cards, weights_bytes, bytes_per_token, users, context, tokens_per_second):
    """(name, speed) of the first card that can carry the service; None if none can.

    cards: a list of (name, memory_bytes, bandwidth) with the cheapest first; bandwidth in bytes a second.
    speed: the tokens a second that each user can get at most while all of them decode. A decode step gives every user
      one token; it reads the weights once and every user's cache once.
    A card can carry the service if
    - the weights and the caches of all `users`, each with `context` tokens, fit, and memory_bytes // 10 stay free;
    - the speed is at least `tokens_per_second`.
    """
    return ...
'''

SOLUTION = """
def choose_card(cards, weights_bytes, bytes_per_token, users, context, tokens_per_second):
    needed = weights_bytes + users * context * bytes_per_token
    for name, memory_bytes, bandwidth in cards:
        speed = bandwidth / needed
        if needed <= memory_bytes - memory_bytes // 10 and speed >= tokens_per_second:
            return name, speed
    return None
"""

BY_LISTS = """
def choose_card(cards, weights_bytes, bytes_per_token, users, context, tokens_per_second):
    caches = sum(context * bytes_per_token for _ in range(users))
    large = [card for card in cards if card[1] - card[1] // 10 - weights_bytes >= caches]
    speeds = [(card[0], card[2] / (weights_bytes + caches)) for card in large]
    fast = [pair for pair in speeds if pair[1] >= tokens_per_second]
    return fast[0] if fast else None
"""

ONE_CACHE = "That is one user's cache. All users have theirs in memory at the same time, and a step reads them all."

MISTAKES = (
    Mistake(
        SOLUTION.replace("memory_bytes - memory_bytes // 10", "memory_bytes"),
        "You filled the card to the last byte. A tenth of its memory must stay free.",
    ),
    Mistake(
        SOLUTION.replace("weights_bytes + users * context", "users * weights_bytes + users * context"),
        "You loaded the weights once for every user. They are loaded once, and shared.",
    ),
    Mistake(
        SOLUTION.replace("weights_bytes + users *", "users *"),
        "The weights are missing: they take memory, and every step reads them.",
    ),
    Mistake(
        SOLUTION.replace("users * context * bytes_per_token", "context * bytes_per_token"),
        ONE_CACHE,
    ),
    Mistake(
        SOLUTION.replace("bandwidth / needed", "bandwidth / (weights_bytes + context * bytes_per_token)"),
        ONE_CACHE,
    ),
    Mistake(
        SOLUTION.replace("bandwidth / needed", "bandwidth / weights_bytes"),
        "A step reads the weights and the caches: with many users, or long contexts, the caches are the larger part.",
    ),
    Mistake(
        SOLUTION.replace("bandwidth / needed", "users * bandwidth / needed"),
        "That is the speed of all users together. Each of them must get tokens_per_second.",
    ),
    Mistake(
        SOLUTION.replace("bandwidth / needed", "bandwidth / needed / users"),
        "You shared the steps out among the users. One step gives every user a token, as it reads the weights for all.",
    ),
    Mistake(
        SOLUTION.replace(" and speed >= tokens_per_second", ""),
        "The card is large enough, but too slow: check the second condition as well.",
    ),
    Mistake(
        SOLUTION.replace("needed <= memory_bytes - memory_bytes // 10 and ", ""),
        "The card is fast enough, but too small: check the first condition as well.",
    ),
    Mistake(
        SOLUTION.replace("speed\n    return None", "speed\n        return None"),
        "You gave up at the first card that can't carry it: go on to the next one.",
    ),
    Mistake(
        SOLUTION.replace("in cards:", "in reversed(cards):"),
        "That one can carry it, but a cheaper one can too: take the first in the list.",
    ),
    Mistake(
        SOLUTION.replace("needed <=", "needed <"),
        "It fits exactly, and that is enough: <= in place of <.",
    ),
    Mistake(
        SOLUTION.replace("speed >= tokens_per_second", "speed > tokens_per_second"),
        "It is just as fast as it must be, and that is enough: >= in place of >.",
    ),
    Mistake(SOLUTION.replace("return name, speed", "return name"), says="It is a str, where a tuple is expected"),
    Mistake(
        SOLUTION.replace("return name, speed", "return speed, name"), says="The first difference is at [0]. It is a"
    ),
    Mistake(
        SOLUTION.replace("return name, speed", "return name, int(speed)"),
        "You cut the speed down to a whole number. Return the float.",
    ),
    Mistake(
        SOLUTION.replace("users * context * bytes_per_token", "users * bytes_per_token"),
        "That is the cache of one token for each user. Each has `context` tokens.",
    ),
    Mistake(
        SOLUTION.replace("memory_bytes - memory_bytes // 10", "memory_bytes - memory_bytes // 5"),
        "A fifth of the memory was kept free. It is a tenth.",
    ),
    Mistake(
        SOLUTION.replace(
            "    for name, memory", "    cards = sorted(cards, key=lambda card: -card[2])\n    for name, memory"
        ),
        "That one can carry it, but a cheaper one can too: take the first in the list.",
    ),
    Mistake(SOLUTION.replace("return None", "return ()"), says="It is a tuple, where None is expected"),
    Mistake(
        SOLUTION.replace("return None", "raise ValueError('no card')"),
        says="ValueError: no card",
    ),
)

# Numbers to do in one's head: a user takes 50 tokens × 2 bytes = 100 bytes.
CARDS = [("small", 1_000, 10_000), ("middle", 2_000, 8_000), ("large", 4_000, 24_000)]
TIED = ("SmolLM2-1.7B", "Llama-3.2-1B", "Qwen3-0.6B", "Qwen2.5-0.5B")  # a step reads all of their weights


def cases(rng: random.Random) -> Iterator[Case]:
    small, middle, large = (bandwidth for _, _, bandwidth in CARDS)
    yield Case((CARDS, 500, 2, 3, 50, 8), ("small", small / 800), "500 + 3 × 100 = 800 bytes, and 10,000 / 800 = 12.5.")
    yield Case(
        (CARDS, 500, 2, 3, 50, 13), ("large", large / 800), "The small card is large enough, but 12.5 is too slow."
    )
    yield Case((CARDS, 500, 2, 10, 50, 2), ("middle", middle / 1_500), "500 + 10 × 100 = 1,500: more than small has.")
    yield Case((CARDS, 500, 2, 7, 25, 8), ("small", small / 850), "850 bytes, and the small card may hold 900.")
    yield Case((CARDS, 500, 2, 4, 50, 8), ("small", small / 900), "900 bytes are just what the small card may hold.")
    yield Case((CARDS, 500, 2, 5, 50, 8), ("middle", middle / 1_000), "A tenth of the small card must stay free.")
    yield Case((CARDS, 500, 2, 3, 50, 12.5), ("small", small / 800), "The small card is just fast enough.")
    yield Case((CARDS, 500, 2, 3, 50, 40), None, "Even the large card gives only 24,000 / 800 = 30.")
    yield Case((CARDS, 500, 2, 40, 50, 1), None, "4,500 bytes: more than any card has.")
    for _ in range(30):
        layer = Layer("full", (Attention(rng.choice((1, 2, 8)), 64, 64),))
        spec, weights = [layer] * rng.randrange(1, 40), rng.randrange(10**8, 3 * 10**10)
        users, context = rng.randrange(1, 60), rng.randrange(100, 20_000)
        cards = [
            (f"card {i}", rng.randrange(8, 200) * 10**9, rng.randrange(200, 5_000) * 10**9 + rng.randrange(10**6))
            for i in range(4)
        ]
        yield _random_case(spec, weights, users, context, cards, rng.choice((5, 20, 60)))
    gpus = sorted(gpu_table().values(), key=lambda gpu: gpu.memory_nbytes)
    for name in TIED:
        users, context, speed = rng.randrange(5, 60), rng.randrange(1_000, 8_000), rng.choice((10, 40, 100))
        plans = [fit(name, gpu.name, context=context) for gpu in gpus]
        speeds = [(p.gpu.name, p.steps_per_second(users)) for p in plans if users <= p.users]
        able = [pair for pair in speeds if pair[1] >= speed]
        cards = [(gpu.name, gpu.memory_nbytes, gpu.bandwidth) for gpu in gpus]
        per_token = kv_cache(name, 1).bytes_per_token
        args = (cards, 2 * model_weights(name).total, per_token, users, context, speed)
        yield Case(args, able[0] if able else None, origin="real model")


def _random_case(
    spec: list[Layer], weights: int, users: int, context: int, cards: list[tuple[str, int, int]], speed: int
) -> Case:
    """Expected by another way: the users that fit, found by trying, and exact fractions."""
    expected = None
    for name, memory, bandwidth in reversed(cards):
        budget = memory - memory // 10 - weights
        caches = kv_cache(spec, context, users).nbytes
        steps = Fraction(bandwidth, weights + caches)
        if budget >= 0 and max_sequences(spec, context, budget) >= users and steps >= speed:
            expected = (name, float(steps))
    per_token = kv_cache(spec, 1).bytes_per_token
    return Case((cards, weights, per_token, users, context, speed), expected, origin="random")


EXERCISE = Exercise(
    lesson="05b",
    stub=STUB,
    hints=(
        "How many bytes does the service need in memory? The same bytes are what a step reads. So there is one number "
        "to compute, and two things to compare it with, for one card after the other.",
        "needed = weights_bytes + users * context * bytes_per_token. A card can carry it if needed is at most "
        "memory_bytes - memory_bytes // 10, and bandwidth / needed, the steps a second, is at least tokens_per_second.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_LISTS,),
)
