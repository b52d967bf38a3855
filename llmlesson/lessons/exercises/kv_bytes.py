"""The size of a KV cache, from a config."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_engine
from llmlesson.sizing import kv_cache, model_table

STUB = '''
def kv_bytes(config, tokens, users, value_bytes):
    """The bytes of `users` KV caches of `tokens` tokens each, as a whole number.

    config: a dict with num_hidden_layers, num_attention_heads and hidden_size. It may also have
      num_key_value_heads (where it is missing, there are as many KV heads as query heads) and
      head_dim (where it is missing or None, hidden_size is shared out among the query heads).
    value_bytes: the bytes of one stored number, such as 2 for 16 bits.
    """
    return ...
'''

SOLUTION = """
def kv_bytes(config, tokens, users, value_bytes):
    query_heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", query_heads)
    head_dim = config.get("head_dim") or config["hidden_size"] // query_heads
    return 2 * config["num_hidden_layers"] * kv_heads * head_dim * tokens * users * value_bytes
"""

BY_LAYER = """
def kv_bytes(config, tokens, users, value_bytes):
    kv_heads = config["num_attention_heads"]
    if "num_key_value_heads" in config:
        kv_heads = config["num_key_value_heads"]
    head_dim = config.get("head_dim")
    if head_dim is None:
        head_dim = int(config["hidden_size"] / config["num_attention_heads"])
    keys = values = 0
    for _ in range(config["num_hidden_layers"]):
        keys += users * kv_heads * tokens * head_dim * value_bytes
        values += users * kv_heads * tokens * head_dim * value_bytes
    return keys + values
"""

QUERY_HEADS = (
    "You counted every query head. (hidden_size alone is the same in disguise, and so is hidden_size shared out among "
    "the KV heads.) Only the KV heads are stored, and here there are fewer of them."
)

MISTAKES = (
    Mistake(SOLUTION.replace("return 2 * ", "return "), "You counted the keys or the values. Both are stored."),
    Mistake(
        SOLUTION.replace('config["num_hidden_layers"] * ', ""),
        "That is one layer. Every layer keeps keys and values of its own.",
    ),
    Mistake(SOLUTION.replace('config.get("num_key_value_heads", query_heads)', "query_heads"), QUERY_HEADS),
    Mistake(
        "def kv_bytes(config, tokens, users, value_bytes):\n"
        '    return 2 * config["num_hidden_layers"] * config["hidden_size"] * tokens * users * value_bytes',
        QUERY_HEADS,
    ),
    Mistake(
        SOLUTION.replace('config["hidden_size"] // query_heads', 'config["hidden_size"] // kv_heads'),
        QUERY_HEADS,
    ),
    Mistake(
        SOLUTION.replace('config.get("head_dim") or ', ""),
        "The config states its head_dim, and it isn't hidden_size / num_attention_heads. Stated, it counts.",
    ),
    Mistake(
        SOLUTION.replace(
            'config.get("head_dim") or config["hidden_size"] // query_heads',
            'config.get("head_dim", config["hidden_size"] // query_heads)',
        ),
        "head_dim may be there and be None: .get(name, default) then gives None, not the default.",
    ),
    Mistake(
        SOLUTION.replace('config.get("num_key_value_heads", query_heads)', 'config["num_key_value_heads"]'),
        "Older models have no num_key_value_heads: then every query head has keys and values of its own.",
    ),
    Mistake(
        SOLUTION.replace('config.get("num_key_value_heads", query_heads)', 'config.get("num_key_value_heads", 1)'),
        "Without num_key_value_heads there isn't one KV head, there are as many as query heads.",
    ),
    Mistake(SOLUTION.replace("users * ", ""), "That is one user. Each of them has a cache of their own."),
    Mistake(
        SOLUTION.replace("tokens * users * value_bytes", "(tokens + users) * value_bytes"),
        "Each user has `tokens` tokens: multiply, don't add.",
    ),
    Mistake(SOLUTION.replace("//", "/"), says="float where a whole number (int) is expected"),
    Mistake(
        "from llmlesson import sizing\n\ndef kv_bytes(config, tokens, users, value_bytes):\n"
        "    dtype = {4: 'fp32', 2: 'bf16', 1: 'fp8'}[value_bytes]\n"
        "    return sizing.kv_cache({'model_type': 'llama', **config}, tokens, users, dtype).nbytes",
        says="which is the course's own way to do it",
    ),
    Mistake(
        SOLUTION.replace("head_dim * tokens * users * value_bytes", "head_dim * tokens * users * 2"),
        "You took two bytes for every number. How many it takes, value_bytes says.",
    ),
    Mistake(
        SOLUTION.replace("* value_bytes", "* value_bytes / 1"),
        says="float where a whole number (int) is expected",
    ),
    Mistake(SOLUTION.replace("* value_bytes", "* value_bytes / 10**9"), "You returned GB. Bytes are asked for."),
    Mistake(
        SOLUTION.replace("* value_bytes", "* value_bytes * 8"),
        "You returned bits. value_bytes are bytes, and so is the result.",
    ),
    Mistake(
        SOLUTION.replace("return 2 *", "return f'{2 *").replace("value_bytes\n", "value_bytes:,}'\n"),
        says="It is a str, where an int is expected",
    ),
    Mistake(
        SOLUTION.replace("* kv_heads *", "* (query_heads + 2 * kv_heads) // 2 *"),
        "You counted queries too. They are used once and thrown away: only K and V are stored.",
    ),
    Mistake(
        SOLUTION.replace("kv_heads * head_dim", "kv_heads + head_dim"),
        "Each KV head has head_dim numbers: multiply, don't add.",
    ),
    Mistake(SOLUTION.replace('config["num_attention_heads"]', "config.num_attention_heads"), says="AttributeError"),
    Mistake(
        SOLUTION.replace(
            'config.get("num_key_value_heads", query_heads)',
            'query_heads // config.get("num_key_value_heads", query_heads)',
        ),
        "You counted the query heads of a group. The KV heads are stored, and num_key_value_heads is their number.",
    ),
    Mistake(
        SOLUTION.replace("tokens *", "(tokens + 1) *"),
        "You counted one token too many. The answer's next token adds its K and V when it is read, and not before.",
    ),
    Mistake(
        SOLUTION.replace("tokens *", "(tokens - 1) *"),
        "You counted one token too few. The first token has keys and values like any other.",
    ),
    Mistake(
        SOLUTION.replace("tokens *", "tokens * tokens *"),
        "You counted a pair of every two tokens. That is the table of scores, which nobody keeps: K and V grow evenly.",
    ),
    Mistake(SOLUTION.replace("tokens * ", ""), "That is one token. Each of them leaves keys and values behind."),
    Mistake(
        SOLUTION.replace("* value_bytes", "* value_bytes // 8"),
        "You divided by 8. value_bytes are bytes already: 2 for 16 bits.",
    ),
    Mistake(
        SOLUTION.replace('config.get("head_dim") or config["hidden_size"] // query_heads', "64"),
        "64 is the head_dim of this course's model. Other models have another: take it from the config.",
    ),
)

# A wrong result shows which number went wrong: 5 layers, 21 query heads in 3 groups of 7, head_dim 96.
NO_TWO_ALIKE = {"num_hidden_layers": 5, "num_attention_heads": 21, "num_key_value_heads": 3, "hidden_size": 2016}
# As in the models' own config.json. Llama-2-7B's first one had no num_key_value_heads; Falcon-7B has one KV head for
# 71 query heads.
SMOLLM2 = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
LLAMA_2_7B = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
QWEN_2_5_7B = {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584}
FALCON_7B = {"num_hidden_layers": 32, "num_attention_heads": 71, "num_key_value_heads": 1, "hidden_size": 4544}
QWEN_3_06B = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "hidden_size": 1024,
    "head_dim": 128,
}
REAL = ("meta-llama/Llama-3.1-405B", "Qwen/Qwen3-32B", "mistralai/Mistral-7B-v0.3", "HuggingFaceTB/SmolLM2-1.7B")


def cases(rng: random.Random) -> Iterator[Case]:
    yield Case((NO_TWO_ALIKE, 11, 13, 1), 411_840, "A made-up model: 13 users with 11 tokens each, in 8 bits.")
    yield Case((SMOLLM2, 1, 1, 2), 23_040, "The model of this course, one token in 16 bits.")
    yield Case((LLAMA_2_7B, 1, 1, 2), 524_288, "Llama-2-7B, one token in 16 bits: the article's number.")
    yield Case((QWEN_2_5_7B, 1, 1, 2), 57_344, "Qwen2.5-7B has 4 KV heads for 28 query heads.")
    yield Case((FALCON_7B, 1, 1, 2), 8_192, "One KV head for all query heads: multi-query attention.")
    yield Case((QWEN_3_06B, 1, 1, 2), 114_688, "Qwen3-0.6B states a head_dim of 128, and 1024 / 16 is 64.")
    yield Case(({**QWEN_2_5_7B, "head_dim": None}, 1, 1, 2), 57_344, "head_dim is there, and it is None.")
    yield Case((QWEN_2_5_7B, 1_000, 3, 2), 3 * 57_344_000, "Three users with 1,000 tokens each.")
    yield Case((QWEN_2_5_7B, 1, 1, 1), 28_672, "In 8 bits, half as much.")
    for _ in range(10):
        config = _random_config(rng)
        tokens, users, (dtype, value_bytes) = rng.randrange(1, 9999), rng.randrange(1, 99), rng.choice(STORED)
        expected = _bytes_of_tensors(config, tokens, users, dtype)
        yield Case((config, tokens, users, value_bytes), expected, origin="random")
    for name in REAL:
        config = {key: value for key, value in model_table()[name]["config"].items() if key in FIELDS}
        yield Case((config, 8_192, 4, 2), kv_cache(name, 8_192, 4).nbytes, origin="real model")
    engine = real_engine()
    cache, _ = engine.prefill(engine.tokenizer.encode("How large am I?"))
    config = {key: getattr(engine.config, key) for key in FIELDS}
    yield Case((config, cache.length, 1, engine.dtype.itemsize), cache.nbytes, origin="real model")


FIELDS = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim")
STORED = ((torch.float32, 4), (torch.bfloat16, 2), (torch.int8, 1))


def _random_config(rng: random.Random) -> dict[str, Any]:
    kv_heads, group, head_dim = rng.choice((1, 2, 8)), rng.choice((1, 2, 4)), rng.choice((64, 96, 128))
    config: dict[str, Any] = {
        "num_hidden_layers": rng.randrange(1, 100),
        "num_attention_heads": kv_heads * group,
        "hidden_size": kv_heads * group * head_dim,
    }
    if group > 1 or rng.random() < 0.5:
        config["num_key_value_heads"] = kv_heads
    if rng.random() < 0.5:
        config["head_dim"] = rng.choice((None, 80, 256))
    return config


def _bytes_of_tensors(config: dict[str, Any], tokens: int, users: int, dtype: torch.dtype) -> int:
    """The bytes of tensors that have the cache's shape, and no memory."""
    query_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or torch.empty(config["hidden_size"]).view(query_heads, -1).shape[1]
    shape = (users, config.get("num_key_value_heads", query_heads), tokens, head_dim)
    layer = [torch.empty(shape, dtype=dtype, device="meta") for _ in ("keys", "values")]
    return sum(tensor.nbytes for tensor in layer) * config["num_hidden_layers"]


EXERCISE = Exercise(
    lesson="05",
    stub=STUB,
    hints=(
        "A layer keeps two tensors for each user, keys and values, each of shape [kv_heads, tokens, head_dim]. Find "
        "kv_heads and head_dim first: each has a rule for where it is missing.",
        'kv_heads = config.get("num_key_value_heads", config["num_attention_heads"]). For head_dim, '
        'config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]. Then multiply all seven.',
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_LAYER,),
)
