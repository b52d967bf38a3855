"""The ceiling on decode speed, from bytes and bandwidth."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.sizing import fit, kv_cache, model_weights

STUB = '''
def tokens_per_second(weight_bytes, kv_bytes_per_token, context, users, bandwidth_gb):
    """The most tokens a second that decode can give, all users together, where memory is the limit.

    weight_bytes: what a step reads of the weights, once for all users. kv_bytes_per_token: of the cache.
    context: tokens in the cache of each user. users: sequences that one step serves; each gets one token.
    bandwidth_gb: what the memory gives, in GB/s, as data sheets have it. Returns a float.
    """
    return ...
'''

SOLUTION = """
def tokens_per_second(weight_bytes, kv_bytes_per_token, context, users, bandwidth_gb):
    bytes_per_step = weight_bytes + users * context * kv_bytes_per_token
    seconds_per_step = bytes_per_step / (bandwidth_gb * 10**9)
    return users / seconds_per_step
"""

BY_USER = """
def tokens_per_second(weight_bytes, kv_bytes_per_token, context, users, bandwidth_gb):
    share = weight_bytes / users + kv_bytes_per_token * context
    return bandwidth_gb * 1e9 / share
"""

SPEEDS_ADDED = """
def tokens_per_second(weight_bytes, kv_bytes_per_token, context, users, bandwidth_gb):
    cache_bytes = users * context * kv_bytes_per_token
    speeds = [bandwidth_gb * 10**9 / size for size in (weight_bytes, cache_bytes) if size]
    return users * sum(speeds)
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace("users * context", "users * context / 2"),
        "You took half the context, as on average over an answer. `context` is what is in the cache at this step.",
    ),
    Mistake(
        SOLUTION.replace("users / seconds_per_step", "users // seconds_per_step"),
        "// drops the decimals. A speed has decimals: divide with /.",
    ),
    Mistake(
        SOLUTION.replace("users * context", "users * context**2"),
        "You squared the context. One new token looks back once at each earlier one: reading the cache is linear.",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return 1 / seconds_per_step / users"),
        "You shared the steps out among the users. They don't take turns: one step serves all, and gives each a token.",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return users**2 / seconds_per_step"),
        "You multiplied by the users twice. A step gives as many tokens as there are users.",
    ),
    Mistake(
        SOLUTION.replace("users / seconds_per_step", "1000 * users / seconds_per_step"),
        "That is a thousand times too many: milliseconds? Bytes divided by bytes a second are seconds.",
    ),
    Mistake(
        SOLUTION.replace("weight_bytes + users", "weight_bytes / users + users"),
        "You shared the weights out among the users, but not their caches. A step reads all of both.",
    ),
    Mistake(
        SPEEDS_ADDED,
        "You added two speeds. Weights and caches are read one after the other: add their bytes, or their times.",
    ),
    Mistake(
        SOLUTION.replace("bytes_per_step / (bandwidth_gb * 10**9)", "bytes_per_step // 10**9 / bandwidth_gb"),
        "You cut the bytes down to whole gigabytes. Divide with /, which keeps the decimals.",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return users * context / seconds_per_step"),
        "You multiplied by the context, too. Those tokens are read in the step; what it makes is one for each user.",
    ),
    Mistake(
        SOLUTION.replace(" + users * context * kv_bytes_per_token", ""),
        "The cache is missing. Each step reads the keys and values of all tokens before it, of every user.",
    ),
    Mistake(
        SOLUTION.replace("users * context", "context"),
        "You read the cache of one user. Each has their own, and a step reads all of them.",
    ),
    Mistake(
        SOLUTION.replace("users * context * kv_bytes_per_token", "users * kv_bytes_per_token"),
        "You read one token of the cache. A step writes one and reads all of them: the whole context.",
    ),
    Mistake(
        SOLUTION.replace("weight_bytes + users * context * kv", "users * (weight_bytes + context * kv").replace(
            "per_token\n    seconds", "per_token)\n    seconds"
        ),
        "You read the weights once for each user. One step serves all of them and reads the weights once.",
    ),
    Mistake(
        SOLUTION.replace("users / seconds", "1 / seconds"),
        "These are steps a second, which is what one user sees. Each step gives every user a token.",
    ),
    Mistake(
        SOLUTION.replace("10**9", "2**30"),
        "You took GB for GiB. Data sheets give GB/s: 10**9 bytes a second; 2**30 would be 7 % more than there is.",
    ),
    Mistake(
        SOLUTION.replace("bandwidth_gb * 10**9", "bandwidth_gb"),
        "The bandwidth comes in GB/s and the sizes in bytes: one GB is 10**9 bytes.",
    ),
    Mistake(
        SOLUTION.replace("bandwidth_gb * 10**9", "bandwidth_gb * 10**9 / 8"),
        "You took gigabits: a small b. GB/s are bytes already.",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return seconds_per_step"),
        "These are seconds for each step. Tokens a second are tokens of a step, divided by its seconds.",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return int(users / seconds_per_step)"),
        "You cut the result down to a whole number. A speed has decimals: return the float.",
    ),
    Mistake(SOLUTION.replace("    return users / seconds_per_step\n", ""), says="without `return` gives None"),
    Mistake(
        SOLUTION.replace("weight_bytes + users", "max(weight_bytes, users").replace(
            "per_token\n    sec", "per_token)\n    sec"
        ),
        "You took the larger of weights and caches. A step reads both, one after the other: add them.",
    ),
    Mistake(
        SOLUTION.replace("users * context * kv", "users * (context + 1) * kv"),
        "You counted the new token in. The cache holds `context` tokens of each user, and those are what a step reads.",
    ),
    Mistake(
        SOLUTION.replace("users * context * kv_bytes_per_token", "2 * users * context * kv_bytes_per_token"),
        "You counted K and V again: kv_bytes_per_token holds both already.",
    ),
    Mistake(
        SOLUTION.replace("weight_bytes + users", "2 * weight_bytes + users"),
        "You took weight_bytes for a count of weights. It is bytes already.",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return round(users / seconds_per_step, 1)"),
        "You rounded the result. Leave that to the code that shows it, and return the float as it is.",
    ),
    Mistake(
        SOLUTION.replace("bandwidth_gb * 10**9", "bandwidth_gb * 1000**2"),
        "You took megabytes. A GB is 10**9 bytes.",
    ),
    Mistake(
        "from llmlesson.sizing import fit\n\n"
        "def tokens_per_second(weight_bytes, kv_bytes_per_token, context, users, bandwidth_gb):\n"
        "    return users * fit('Qwen2.5-7B', 'H100-80GB', context=context).steps_per_second(users)",
        says="which is the course's own way to do it",
    ),
    Mistake(
        SOLUTION.replace("return users / seconds_per_step", "return f'{users / seconds_per_step}'"), says="It is a str"
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    yield Case((10**9, 0, 10, 1, 100), 100.0)
    yield Case((3 * 10**9, 10**5, 10_000, 8, 110), 80.0, "3 GB of weights, and 1 GB of cache for each of eight users.")
    yield Case((2 * 10**9, 10**5, 10_000, 1, 90), 30.0)
    yield Case((10**9, 10**5, 10_000, 1, 7), 3.5)
    yield Case((10**9, 10**6, 1_000, 1, 5), 2.5)
    for _ in range(30):
        args = (
            rng.randrange(10**8, 10**11),
            rng.randrange(10**4, 10**6),
            rng.randrange(1, 10**5),
            rng.randrange(1, 65),
            rng.randrange(10, 5000),
        )
        yield Case(args, one_second(*args), origin="random")
    for model in ("Llama-2-7b-hf", "Qwen2.5-7B"):
        for users in (1, 2):
            weights = 2 * model_weights(model).read_per_token
            plan = fit(model, "H200-141GB", context=100_000)
            args = (weights, kv_cache(model, 1).nbytes, 100_000, users, plan.gpu.bandwidth // 10**9)
            yield Case(args, users * plan.steps_per_second(users), origin="real model")


def one_second(weight_bytes: int, kv_bytes_per_token: int, context: int, users: int, bandwidth_gb: int) -> float:
    """By sharing out the bytes that one second can move, without rounding."""
    step = Fraction(weight_bytes)
    for _ in range(users):
        step += kv_bytes_per_token * context
    return float(Fraction(bandwidth_gb * 1_000_000_000) / step * users)


EXERCISE = Exercise(
    lesson="03b",
    stub=STUB,
    hints=(
        "How many bytes must one step read? The weights once, and the cache of every user. How long does the memory "
        "take for that, and how many tokens come out of it?",
        "bytes_per_step = weight_bytes + users * …; divided by bytes a second (bandwidth_gb * 10**9) that is the time "
        "of a step, and each step gives one token to each user.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_USER,),
)
