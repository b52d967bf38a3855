"""As many KV heads as a memory budget allows."""

from __future__ import annotations

import random
from collections.abc import Iterator

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.sizing import Attention, Layer, kv_cache, model_table

STUB = '''
def choose_kv_heads(query_heads, layers, head_dim, value_bytes, users, context, budget):
    """The most KV heads whose caches fit into `budget` bytes; None if not even one does.

    The query heads must be shared out among them in equal groups.
    value_bytes: bytes of one stored number. users: each has a cache of `context` tokens.
    """
    return ...
'''

SOLUTION = """
def choose_kv_heads(query_heads, layers, head_dim, value_bytes, users, context, budget):
    of_one = 2 * layers * head_dim * value_bytes * users * context  # bytes for each KV head
    for kv_heads in range(query_heads, 0, -1):
        if query_heads % kv_heads == 0 and kv_heads * of_one <= budget:
            return kv_heads
    return None
"""

BY_LIST = """
def choose_kv_heads(query_heads, layers, head_dim, value_bytes, users, context, budget):
    token = 2 * layers * head_dim * value_bytes
    most = budget // (token * users * context)
    return max((n for n in range(1, min(most, query_heads) + 1) if not query_heads % n), default=None)
"""

NEAREST = """
def choose_kv_heads(query_heads, layers, head_dim, value_bytes, users, context, budget):
    most = budget / (2 * layers * head_dim * value_bytes * users * context)
    if most < 1:
        return None
    return min((n for n in range(1, query_heads + 1) if query_heads % n == 0), key=lambda n: abs(n - most))
"""

HALVES = """
def choose_kv_heads(query_heads, layers, head_dim, value_bytes, users, context, budget):
    kv_heads = query_heads
    while kv_heads and kv_heads * 2 * layers * head_dim * value_bytes * users * context > budget:
        kv_heads //= 2
    return kv_heads or None
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace("query_heads % kv_heads == 0 and ", ""),
        "So many would fit, but the query heads can't be shared out among them in equal groups.",
    ),
    Mistake(
        SOLUTION.replace("range(query_heads, 0, -1)", "range(1, query_heads + 1)"),
        "That fits, but more would fit too. The more KV heads, the better the answers: take the most.",
    ),
    Mistake(SOLUTION.replace("2 * layers", "layers"), "Keys and values: each KV head takes its bytes twice."),
    Mistake(SOLUTION.replace("layers * head_dim", "head_dim"), "Each layer has a cache of its own."),
    Mistake(SOLUTION.replace("users * context", "context"), "That is one user's cache. All of them have to fit."),
    Mistake(SOLUTION.replace(" * value_bytes", ""), "You counted numbers. Each takes value_bytes bytes."),
    Mistake(SOLUTION.replace("<= budget", "< budget"), "It fits exactly, and that is enough: <= in place of <."),
    Mistake(
        SOLUTION.replace("query_heads % kv_heads == 0", "kv_heads & (kv_heads - 1) == 0"),
        "You took powers of two, or halved. Equal groups are what is needed: 9 query heads can share 3 KV heads.",
    ),
    Mistake(
        SOLUTION.replace("value_bytes *", "value_bytes / 8 *"),
        "value_bytes are bytes already; you divided by 8, as if they were bits.",
    ),
    Mistake(
        SOLUTION.replace("range(query_heads, 0, -1)", "range(query_heads, 1, -1)"),
        "A single KV head is allowed too: all query heads share it.",
    ),
    Mistake(
        NEAREST, "That is the number nearest to what would fit, and it is more. The caches have to fit: round down."
    ),
    Mistake(
        HALVES,
        "You took powers of two, or halved. Equal groups are what is needed: 9 query heads can share 3 KV heads.",
    ),
    Mistake(
        SOLUTION.replace("range(query_heads, 0, -1)", "range(10 * query_heads, 0, -1)").replace(
            "query_heads % kv_heads == 0", "max(query_heads, kv_heads) % min(query_heads, kv_heads) == 0"
        ),
        "These are more KV heads than query heads. Nobody would read the others.",
    ),
    Mistake(
        SOLUTION.replace("return None", "return 1"),
        "Not even one KV head fits here. None says so; 1 would end in out of memory.",
    ),
    Mistake(SOLUTION.replace("return None", "return 0"), says="It is an int, where None is expected"),
    Mistake(
        SOLUTION.replace("range(query_heads, 0, -1)", "range(query_heads // 2, 0, -1)"),
        "As many KV heads as query heads is allowed too, if they fit: that is attention without any sharing.",
    ),
    Mistake(
        SOLUTION.replace("return kv_heads", "return query_heads // kv_heads"),
        "That is how many query heads share a KV head. Asked for is how many KV heads there are.",
    ),
    Mistake(
        SOLUTION.replace("return kv_heads", "return kv_heads * of_one"),
        "These are the bytes of the caches. Asked for is how many KV heads fit.",
    ),
    Mistake(
        SOLUTION.replace("kv_heads * of_one <= budget", "query_heads * of_one <= budget"),
        "You counted a KV head for each query head. What takes memory are the KV heads that are left.",
    ),
    Mistake(SOLUTION.replace("return kv_heads", "return float(kv_heads)"), says="float where a whole number (int)"),
    Mistake(SOLUTION.replace("return kv_heads", "return [kv_heads]"), says="It is a list, where an int is expected"),
    Mistake(
        SOLUTION.replace("return None", "raise ValueError('too small')"),
        says="ValueError: too small",
    ),
)

HEAD = 7_680_000  # bytes: a KV head of SmolLM2-135M, 1,000 tokens in 16 bits
DTYPES = {4: "fp32", 2: "bf16", 1: "fp8"}
REAL = ("Llama-2-7b-hf", "Llama-3.1-8B", "Qwen2.5-7B", "SmolLM2-135M")


def cases(rng: random.Random) -> Iterator[Case]:
    ours = (9, 30, 64, 2)  # the model of this course: 2 × 30 × 64 × 2 = 7,680 bytes a token for each KV head
    three = 3 * 2 * 40 * 64 * 4 * 3 * 1_000  # bytes: three KV heads in 40 layers and 32 bits, for three users
    yield Case((96, 40, 64, 4, 3, 1_000, three + 999), 3, "Three users share the budget: there is room for 3 KV heads.")
    yield Case((*ours, 1, 1_000, 3 * HEAD + 999), 3, "There is room for 3, and a little is left.")
    yield Case((*ours, 1, 1_000, 3 * HEAD), 3, "There is room for exactly 3.")
    yield Case((*ours, 1, 1_000, 4 * HEAD), 3, "There is room for 4, but 9 query heads can share 1, 3 or 9.")
    yield Case((*ours, 1, 1_000, 8 * HEAD), 3, "There is room for 8: 9 are one too many, so it is 3.")
    yield Case((9, 30, 64, 1, 1, 1_000, 5 * HEAD // 2), 3, "In 8 bits a head takes half as much: there is room for 5.")
    yield Case((*ours, 1, 1_000, 5 * HEAD), 3, "In 16 bits, and with twice the budget, there is room for 5 again.")
    yield Case((*ours, 1, 1_000, 40 * HEAD), 9, "There is room for 40, but there are only 9 query heads.")
    yield Case((*ours, 5, 1_000, 9 * HEAD), 1, "There is room for 9, but five users share it: 1.8 each.")
    yield Case((*ours, 1, 1_000, HEAD - 1), None, "One byte is missing for a single KV head.")
    for _ in range(25):
        query_heads, layers = rng.choice((6, 8, 9, 12, 28, 32, 40, 64)), rng.randrange(1, 80)
        head_dim, value_bytes = rng.choice((64, 80, 128)), rng.choice(list(DTYPES))
        users, context = rng.randrange(1, 50), rng.randrange(100, 50_000)
        sizes = _sizes(query_heads, layers, head_dim, value_bytes, users, context)
        budget = rng.choice(list(sizes.values())) + rng.choice((-1, 0, 1, 10**6))
        expected = max((count for count, nbytes in sizes.items() if nbytes <= budget), default=None)
        yield Case((query_heads, layers, head_dim, value_bytes, users, context, budget), expected, origin="random")
    for name in REAL:
        full = next(known for known in model_table() if known.endswith(f"/{name}"))
        config = model_table()[full]["config"]
        heads, context = config["num_attention_heads"], rng.randrange(1_000, 8_000)
        nbytes = kv_cache(name, context, 4).nbytes  # what the model's own number of KV heads takes
        args = (heads, config["num_hidden_layers"], config["hidden_size"] // heads, 2, 4, context, nbytes)
        yield Case(args, config.get("num_key_value_heads", heads), origin="real model")


def _sizes(heads: int, layers: int, head_dim: int, value_bytes: int, users: int, context: int) -> dict[int, int]:
    """Bytes for each number of KV heads that gives equal groups, by the sizing package."""
    return {
        heads // group: kv_cache(
            [Layer("full", (Attention(heads // group, head_dim, head_dim),))] * layers,
            context,
            users,
            DTYPES[value_bytes],
        ).nbytes
        for group in range(1, heads + 1)
        if heads // group * group == heads
    }


EXERCISE = Exercise(
    lesson="06b",
    stub=STUB,
    hints=(
        "How many bytes does one KV head take, in all layers, for all users? And which numbers of KV heads give equal "
        "groups?",
        "One KV head takes 2 * layers * head_dim * value_bytes * users * context bytes. Try the numbers from "
        "query_heads down to 1, and return the first that divides query_heads and fits.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_LIST,),
)
