"""The longest context that a card's memory allows."""

from __future__ import annotations

import random
from collections.abc import Iterator

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.sizing import Attention, Layer, kv_cache, max_tokens, model_spec, model_table, model_weights

STUB = '''
def longest_context(memory_gib, weights_bytes, bytes_per_token, users, model_limit):
    """The most tokens that each of `users` can have, all at the same time; 0 if the weights don't fit.

    memory_gib: what the card has for weights and caches, in GiB (2**30 bytes).
    bytes_per_token: what one token of one user takes in the cache.
    model_limit: the longest context that the model is made for. A whole number of tokens is returned.
    """
    return ...
'''

SOLUTION = """
def longest_context(memory_gib, weights_bytes, bytes_per_token, users, model_limit):
    left = memory_gib * 2**30 - weights_bytes
    if left < 0:
        return 0
    return min(left // (users * bytes_per_token), model_limit)
"""

IN_STEPS = """
def longest_context(memory_gib, weights_bytes, bytes_per_token, users, model_limit):
    left = (memory_gib << 30) - weights_bytes
    of_one_user = left // users
    tokens = of_one_user // bytes_per_token
    return sorted((0, tokens, model_limit))[1]
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace("2**30", "10**9"),
        "You took 1 GiB for 10**9 bytes. It is 2**30, which is 7 % more.",
    ),
    Mistake(
        SOLUTION.replace("memory_gib * 2**30 - weights_bytes", "memory_gib * 2**30"),
        "The weights lie in the same memory: what they take is not there for the caches.",
    ),
    Mistake(
        SOLUTION.replace("- weights_bytes", "- users * weights_bytes"),
        "You took the weights off for every user. They are loaded once, and all users share them; only caches are "
        "per user.",
    ),
    Mistake(SOLUTION.replace("users * bytes_per_token", "bytes_per_token"), "Every user needs room for a cache."),
    Mistake(
        SOLUTION.replace("left // (users * bytes_per_token)", "round(left / (users * bytes_per_token))"),
        "You rounded to the nearest. Half a token more than fits doesn't fit: round down.",
    ),
    Mistake(
        SOLUTION.replace("left // (users * bytes_per_token)", "-(-left // (users * bytes_per_token))"),
        "You rounded up. The last token doesn't fit: round down.",
    ),
    Mistake(
        SOLUTION.replace("min(left // (users * bytes_per_token), model_limit)", "left // (users * bytes_per_token)"),
        "Memory isn't the only limit: the model is made for model_limit tokens and no more.",
    ),
    Mistake(
        SOLUTION.replace(
            "min(left // (users * bytes_per_token), model_limit)", "min(left // bytes_per_token, model_limit) // users"
        ),
        "model_limit is the limit of each user's context, not of all contexts together: divide first.",
    ),
    Mistake(
        SOLUTION.replace("    if left < 0:\n        return 0\n", ""),
        "The weights alone don't fit here, and a context can't have fewer than 0 tokens.",
    ),
    Mistake(SOLUTION.replace("left //", "left /"), says="float where a whole number (int) is expected"),
    Mistake(
        SOLUTION.replace("left // (users * bytes_per_token)", "left // bytes_per_token // users - 1"),
        "One token too few. What fits exactly fits.",
    ),
    Mistake(
        SOLUTION.replace("2**30", "1024**2"),
        "You took MiB. A GiB is 2**30 bytes.",
    ),
    Mistake(
        SOLUTION.replace("min(left", "max(left"),
        "You took the larger of the two limits. Both hold: the smaller one decides.",
    ),
    Mistake(
        SOLUTION.replace(
            "(left // (users * bytes_per_token), model_limit)",
            "(left // (users * bytes_per_token), users * model_limit)",
        ),
        "model_limit is the limit of each user's context: it does not grow with the number of users.",
    ),
    Mistake(
        SOLUTION.replace("if left < 0:\n        return 0", "if left < 0:\n        return model_limit"),
        "The weights don't fit, so there is no context at all: 0.",
    ),
    Mistake(SOLUTION.replace("        return 0\n", "        return None\n"), says="without `return` gives None"),
    Mistake(
        SOLUTION.replace("        return 0\n", "        raise ValueError('too large')\n"),
        says="ValueError: too large",
    ),
    Mistake(
        SOLUTION.replace("memory_gib * 2**30", "0.9 * memory_gib * 2**30").replace(
            "return min(left", "return min(int(left)"
        ),
        "You kept a tenth of the memory free. memory_gib is what there is for weights and caches: all of it.",
    ),
    Mistake(
        SOLUTION.replace("token), model_limit)", "token), model_limit) / 1"),
        says="float where a whole number (int) is expected",
    ),
)

MIB, GIB = 2**20, 2**30
CARDS_GIB = (24, 40, 80, 192)
REAL = ("Llama-2-7b-hf", "Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-32B", "DeepSeek-V3")


def cases(rng: random.Random) -> Iterator[Case]:
    limit = 10**6
    yield Case((2, GIB, MIB, 1, limit), 1_024, "2 GiB, half of it for the weights, 1 MiB a token.")
    yield Case((2, GIB, MIB, 4, limit), 256, "The same for four users.")
    yield Case((2, GIB, MIB, 3, limit), 341, "The same for three users: a third of 1,024.")
    yield Case((2, GIB, MIB, 6, limit), 170, "The same for six users: a sixth of 1,024.")
    yield Case((2, GIB, MIB, 1, 512), 512, "There is room for 1,024 tokens, but the model is made for 512.")
    yield Case((2, GIB, MIB, 2, 600), 512, "Room for 512 tokens each, and the model is made for 600.")
    yield Case((2, 3 * GIB, MIB, 1, limit), 0, "3 GiB of weights, 2 GiB of memory.")
    yield Case((2, 2 * GIB, MIB, 1, limit), 0, "The weights fit exactly, and leave nothing.")
    for _ in range(20):
        heads, layers = rng.choice((1, 2, 8)), rng.randrange(1, 80)
        spec = [Layer("full", (Attention(heads, 64, 64),))] * layers
        memory, users, limit = rng.randrange(1, 200), rng.randrange(1, 40), rng.choice((2_048, 131_072, 10**9))
        weights = rng.randrange(1, int(1.2 * memory * GIB))
        yield _case(spec, memory, weights, users, limit, "random")
    for name in REAL:
        limit = model_spec(model_table()[_table_name(name)]["config"]).max_context or 10**9
        for memory in rng.sample(CARDS_GIB, 2):
            yield _case(name, memory, 2 * model_weights(name).total, rng.randrange(1, 9), limit, "real model")


def _table_name(name: str) -> str:
    return next(full for full in model_table() if full.endswith(f"/{name}"))


def _case(model: object, memory: int, weights: int, users: int, limit: int, origin: str) -> Case:
    """Expected is what the sizing package finds by trying sizes, without any division."""
    budget = memory * GIB - weights
    expected = min(max_tokens(model, budget, users), limit) if budget >= 0 else 0
    per_token = kv_cache(model, 1).bytes_per_token
    return Case((memory, weights, per_token, users, limit), expected, origin=origin)


EXERCISE = Exercise(
    lesson="05",
    stub=STUB,
    hints=(
        "What is left of the memory, in bytes, once the weights are in? How much of it does one more token for every "
        "user take? And which two other limits are there?",
        "left = memory_gib * 2**30 - weights_bytes. One token for every user takes users * bytes_per_token. // divides "
        "and rounds down; min() and max() take care of the limits.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(IN_STEPS,),
)
