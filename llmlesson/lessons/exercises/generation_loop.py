"""The loop around prefill and decode, with every reason to stop."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake, NotAsAsked
from llmlesson.lessons.real import real_engine
from llmlesson.lessons.scripted import ENDS, TAIL, Piece, ScriptedCache, ScriptedEngine

STUB = '''
def generate(engine, ids, cache, max_new_tokens, stop):
    """Answer a prompt: (text, reason), greedy, with no more passes through the model than needed.

    ids: the prompt, read by engine.prefill(ids, cache), which gives the cache and a token, as engine.decode does.
    stop: a text that ends the answer and is no part of it, or None.
    reason: "eos", "stop", "length" (max_new_tokens tokens were made) or "cache_full" (no room to read another token).
    If several are true at once, it is the first true one in the order stop, eos, length, cache_full.
    You have engine.eos_token_ids, engine.tokenizer.decode(tokens), cache.length and cache.max_tokens.
    """
    return ...
'''

SOLUTION = """
def generate(engine, ids, cache, max_new_tokens, stop):
    tokens = []
    cache, token = engine.prefill(ids, cache)
    while True:
        tokens.append(token)
        text = engine.tokenizer.decode(tokens)
        if stop and stop in text:
            return text[: text.index(stop)], "stop"
        if token in engine.eos_token_ids:
            return text, "eos"
        if len(tokens) == max_new_tokens:
            return text, "length"
        if cache.length == cache.max_tokens:
            return text, "cache_full"
        cache, token = engine.decode(cache, token)
"""

BY_COUNTING = """
def generate(engine, ids, cache, max_new_tokens, stop):
    text, tokens = "", []
    room = cache.max_tokens - cache.length - len(ids)
    _, token = engine.prefill(ids, cache)
    for _ in range(min(max_new_tokens - 1, room) + 1):
        if tokens:
            _, token = engine.decode(cache, tokens[-1])
        if token in engine.eos_token_ids:
            return [text, "eos"]
        tokens += [token]
        text = engine.tokenizer.decode(tokens)
        shown, found, _ = text.partition(stop) if stop is not None else (text, "", "")
        if found:
            return [shown, "stop"]
    return [text, "length" if len(tokens) == max_new_tokens else "cache_full"]
"""

EOS_FIRST = """
def generate(engine, ids, cache, max_new_tokens, stop):
    cache, token = engine.prefill(ids, cache)
    tokens, text = [token], ""
    while token not in engine.eos_token_ids:
        text = engine.tokenizer.decode(tokens)
        if stop is not None and stop in text:
            return text.split(stop)[0], "stop"
        if len(tokens) >= max_new_tokens:
            return text, "length"
        if cache.length >= cache.max_tokens:
            return text, "cache_full"
        cache, token = engine.decode(cache, token)
        tokens.append(token)
    return text, "eos"
"""

WHILE_THERE_IS_ROOM = """
def generate(engine, ids, cache, max_new_tokens, stop):
    tokens = []
    cache, token = engine.prefill(ids, cache)
    while cache.length < cache.max_tokens:
        tokens.append(token)
        text = engine.tokenizer.decode(tokens)
        if stop and stop in text:
            return text[: text.index(stop)], "stop"
        if token in engine.eos_token_ids:
            return text, "eos"
        if len(tokens) == max_new_tokens:
            return text, "length"
        cache, token = engine.decode(cache, token)
    return engine.tokenizer.decode(tokens), "cache_full"
"""

MAX_STEPS = """
def generate(engine, ids, cache, max_new_tokens, stop):
    cache, token = engine.prefill(ids, cache)
    tokens = [token]
    for _ in range(max_new_tokens):
        text = engine.tokenizer.decode(tokens)
        if stop and stop in text:
            return text[: text.index(stop)], "stop"
        if token in engine.eos_token_ids:
            return text, "eos"
        if cache.length == cache.max_tokens:
            return text, "cache_full"
        cache, token = engine.decode(cache, token)
        tokens.append(token)
    return engine.tokenizer.decode(tokens), "length"
"""

EMIT_FIRST = """
def generate(engine, ids, cache, max_new_tokens, stop):
    cache, token = engine.prefill(ids, cache)
    tokens = [token]
    while True:
        text = engine.tokenizer.decode(tokens)
        if stop and stop in text:
            return text[: text.index(stop)], "stop"
        if len(tokens) == max_new_tokens:
            return text, "length"
        if cache.length == cache.max_tokens:
            return text, "cache_full"
        cache, token = engine.decode(cache, token)
        if token in engine.eos_token_ids:
            return text, "eos"
        tokens.append(token)
"""

WITH_LOGITS = """
def generate(engine, ids, cache, max_new_tokens, stop):
    tokens, new = [], ids
    while True:
        token = int(engine.logits(new, cache)[-1].argmax())
        tokens.append(token)
        text = engine.tokenizer.decode(tokens)
        if stop is not None and stop in text:
            return text.partition(stop)[0], "stop"
        if token in engine.eos_token_ids:
            return text, "eos"
        if len(tokens) == max_new_tokens:
            return text, "length"
        if cache.length == cache.max_tokens:
            return text, "cache_full"
        new = [token]
"""

UNTIL_EOS = """
def generate(engine, ids, cache, max_new_tokens, stop):
    cache, token = engine.prefill(ids, cache)
    tokens = []
    while token not in engine.eos_token_ids:
        tokens.append(token)
        cache, token = engine.decode(cache, token)
    return engine.tokenizer.decode(tokens), "eos"
"""

PIECE_BY_PIECE = """
def generate(engine, ids, cache, max_new_tokens, stop):
    text, made = "", 0
    cache, token = engine.prefill(ids, cache)
    while True:
        text += engine.tokenizer.decode([token])
        made += 1
        if stop and stop in text:
            return text[: text.index(stop)], "stop"
        if token in engine.eos_token_ids:
            return text, "eos"
        if made == max_new_tokens:
            return text, "length"
        if cache.length == cache.max_tokens:
            return text, "cache_full"
        cache, token = engine.decode(cache, token)
"""

ONE_AHEAD = SOLUTION.replace(
    '        if len(tokens) == max_new_tokens:\n            return text, "length"\n',
    "        before = cache.length\n"
    "        if before < cache.max_tokens:\n            cache, token = engine.decode(cache, token)\n"
    '        if len(tokens) == max_new_tokens:\n            return text, "length"\n',
).replace(
    '        if cache.length == cache.max_tokens:\n            return text, "cache_full"\n'
    "        cache, token = engine.decode(cache, token)\n",
    '        if before == cache.max_tokens:\n            return text, "cache_full"\n',
)

ONE_TOO_MANY = (
    "One token too many: max_new_tokens counts all tokens, and the first comes from prefill. So there are only "
    "max_new_tokens - 1 steps."
)
FULL = (
    "A full cache ends the answer too: decode has no room for what it reads. Compare cache.length with "
    "cache.max_tokens before you call it."
)
PAST_THE_LIMIT = (
    "The answer went on behind max_new_tokens, until the model ended it. Count the tokens that are made, and stop "
    "there."
)
WASTED = "The answer is right, but the model read"

LOST = (
    "The last token is missing. While a position is free, one more token can be read; and the one that comes out when "
    "the last position is taken belongs to the answer as well: it is only never read."
)

MISTAKES = (
    Mistake(
        EMIT_FIRST,
        "You never ask whether the first token ends the answer. Prefill gives a token like any other: it can be EOS.",
    ),
    Mistake(MAX_STEPS, ONE_TOO_MANY),
    Mistake(
        UNTIL_EOS,
        PAST_THE_LIMIT,
    ),
    Mistake(
        SOLUTION.replace('        if len(tokens) == max_new_tokens:\n            return text, "length"\n', ""),
        PAST_THE_LIMIT,
    ),
    Mistake(
        SOLUTION.replace("len(tokens) == max_new_tokens", "len(tokens) == max_new_tokens - 1"),
        "One token too few: prefill's token is the first of the max_new_tokens.",
    ),
    Mistake(
        SOLUTION.replace("len(tokens) == max_new_tokens", "len(text) >= max_new_tokens"),
        "You counted characters. max_new_tokens counts tokens.",
    ),
    Mistake(
        PIECE_BY_PIECE,
        "You decoded each token by itself. A character may be spread over several tokens, and half of one comes out "
        "as \N{REPLACEMENT CHARACTER}. Decode all tokens of the answer together, each time.",
    ),
    Mistake(
        SOLUTION.replace("text.index(stop)", "text.rindex(stop)"),
        "The stop string is in the text twice, and the answer ends before the first.",
    ),
    Mistake(
        SOLUTION.replace('"cache_full"', '"length"'),
        "The answer ends in the right place, but not because max_new_tokens were made: the reason is cache_full.",
    ),
    Mistake(ONE_AHEAD, says=WASTED),
    Mistake(
        SOLUTION.replace("engine.decode(cache, token)", "engine.prefill(ids + tokens)")
        .replace("cache.length ==", "len(ids) + len(tokens) - 1 ==")
        .replace("cache, token = engine.prefill(ids + tokens)", "_, token = engine.prefill(ids + tokens)"),
        says=WASTED,
    ),
    Mistake(
        "def generate(engine, ids, cache, max_new_tokens, stop):\n"
        "    answer = engine.generate(ids, max_new_tokens, stop=stop, cache=cache)\n"
        "    return answer.text, answer.finish_reason",
        says="engine.generate and engine.stream are this very loop, ready-made",
    ),
    Mistake(
        SOLUTION.replace("text[: text.index(stop)]", "text"),
        "The stop string is no part of the answer: return the text before it.",
    ),
    Mistake(
        SOLUTION.replace("stop in text:", "stop in engine.tokenizer.decode([token]):"),
        "You looked for the stop string in the newest token alone. It may be spread over several: look in the text.",
    ),
    Mistake(
        SOLUTION.replace("stop in text:", "text.endswith(stop):"),
        "A token may hold the stop string and more text after it. Look for it anywhere in the text, not at its end.",
    ),
    Mistake(
        SOLUTION.replace("if stop and stop in text", "if stop in text"),
        "stop may be None, and None is in no text: ask for that first.",
    ),
    Mistake(
        SOLUTION.replace('        if cache.length == cache.max_tokens:\n            return text, "cache_full"\n', ""),
        FULL,
    ),
    Mistake(
        WHILE_THERE_IS_ROOM,
        LOST,
    ),
    Mistake(
        SOLUTION.replace("cache.length == cache.max_tokens", "cache.length + 1 == cache.max_tokens"),
        LOST,
    ),
    Mistake(
        SOLUTION.replace("token in engine.eos_token_ids", "token == min(engine.eos_token_ids)"),
        "There can be several end-of-sequence tokens; each of them ends the answer. Ask with `in`.",
    ),
    Mistake(
        SOLUTION.replace("engine.prefill(ids, cache)", "engine.prefill(ids)"),
        "You let prefill make a cache of its own. Hand it the one that you were given, or its room means nothing.",
    ),
    Mistake(
        SOLUTION.replace("engine.decode(cache, token)", "engine.prefill(ids + tokens, cache)"),
        "You read the whole text again for each token. Its keys and values are in the cache: decode only what is new.",
    ),
    Mistake(
        SOLUTION.replace('        if len(tokens) == max_new_tokens:\n            return text, "length"\n', "").replace(
            "        if token in engine",
            '        if len(tokens) == max_new_tokens:\n            return text, "length"\n        if token in engine',
        ),
        "The last token that was allowed may be EOS. Then the answer is complete, and the reason is eos.",
    ),
    Mistake(
        SOLUTION.replace("text = engine.tokenizer.decode(tokens)", "text = tokens"), says="where a str is expected"
    ),
    Mistake(SOLUTION.replace('return text, "eos"', "return text"), says="It is a str, where a tuple is expected"),
)

PROMPT = [71, 72, 73]
THUMB = "👍".encode()


def cases(rng: random.Random) -> Iterator[Case]:
    yield case(["Hi", "!", "<end>"], 100, 10, None, ("Hi!", "eos"))
    yield case(["<end>"], 100, 10, None, ("", "eos"))
    yield case(["one", " two", " three"], 100, 3, None, ("one two three", "length"), "Three tokens may be made.")
    yield case(["one"], 100, 1, None, ("one", "length"), "One token may be made: the one that prefill gives.")
    yield case(["one", " two", "."], 100, 10, ".", ("one two", "stop"))
    yield case(["A", " ST", "OP"], 100, 10, "STOP", ("A ", "stop"))
    yield case(["yes", ".\n\n"], 100, 10, ".\n", ("yes", "stop"))
    yield case(["yes", ".no."], 100, 10, ".", ("yes", "stop"))
    yield case(["Hi ", THUMB[:2], THUMB[2:], "!", "<end>"], 100, 10, None, ("Hi 👍!", "eos"))
    yield case(
        ["one", " two", " three", " four", "<end>"],
        5,
        10,
        None,
        ("one two three", "cache_full"),
        "Five positions: three for the prompt, two for tokens that are read. The third is made, and never read.",
    )
    yield case(["one"], 3, 10, None, ("one", "cache_full"), "The prompt fills the cache, and prefill gives a token.")
    yield case(["Hi", "<end of text>"], 100, 10, None, ("Hi", "eos"))
    yield case(["Hi", "<end>"], 100, 2, "x", ("Hi", "eos"))
    yield case(["Hi", "."], 100, 2, ".", ("Hi", "stop"))
    yield case(["Hi", "<end>"], 4, 2, None, ("Hi", "eos"))
    yield case(["one", " two"], 4, 2, None, ("one two", "length"))
    for _ in range(30):
        pieces: list[Piece] = ["a", "b", "ab", "ba", "c", " ", "cb", "bc", "b.b", b"\xc3", b"\xa9"]
        script = [*rng.sample(pieces, rng.randrange(6)), rng.choice(ENDS)]
        room, most, stop = rng.randrange(3, 10), rng.randrange(1, 7), rng.choice([None, "b", "ab", "cb", "bb"])
        needed, text, reason = first_end(script, room, most, stop)
        yield case(script[:needed], room, most, stop, (text, reason), origin="random")
    for max_tokens, most, stop in ((64, 20, None), (64, 20, " is"), (39, 20, None)):
        engine, ids = real_engine(), real_ids()
        args = (engine, ids, engine.new_cache(max_tokens), most, stop)
        yield Case(args, real_answer(max_tokens, most, stop), origin="real model")


def case(
    script: list[Piece],
    room: int,
    most: int,
    stop: str | None,
    expected: tuple[str, str],
    means: str = "",
    origin: str = "fixed",
) -> Case:
    return Case((ScriptedEngine(script), PROMPT, ScriptedCache(room), most, stop), expected, means, origin)


def run(function: Function, engine: Any, ids: list[int], cache: Any, max_new_tokens: int, stop: str | None) -> Any:
    result = function(engine, ids, cache, max_new_tokens, stop)
    if isinstance(engine, ScriptedEngine):
        made, text, reason = first_end([*engine.script, *TAIL], cache.max_tokens, max_new_tokens, stop)
        needed = len(ids) + made - 1
        if isinstance(result, (list, tuple)) and [*result] == [text, reason] and engine.read > needed:
            raise NotAsAsked(
                f"{WASTED} {engine.read} tokens, where {needed} are enough: each is read once, and the last never.",
                result,
            )
    return result


def first_end(script: list[Piece], room: int, most: int, stop: str | None) -> tuple[int, str, str]:
    """By trying every length of the answer: how many tokens are made, the text, the reason."""
    for n in range(1, len(script) + 1):
        made = [piece for piece in script[:n] if piece not in ENDS]
        text = b"".join(p.encode() if isinstance(p, str) else p for p in made).decode(errors="replace")
        reasons = {
            "stop": stop is not None and stop in text,
            "eos": script[n - 1] in ENDS,
            "length": n == most,
            "cache_full": len(PROMPT) + n - 1 == room,
        }
        true = [reason for reason, holds in reasons.items() if holds]
        if true:
            return n, text.split(stop)[0] if true[0] == "stop" else text, true[0]
    raise AssertionError("a script that ends with an end-of-sequence token has an end")


@cache
def real_ids() -> list[int]:
    return real_engine().tokenizer.chat("What is the capital of France?")


@cache
def real_answer(max_tokens: int, most: int, stop: str | None) -> tuple[str, str]:
    """What the engine itself answers."""
    engine = real_engine()
    answer = engine.generate(real_ids(), most, stop=stop, cache=engine.new_cache(max_tokens))
    return answer.text, answer.finish_reason


EXERCISE = Exercise(
    lesson="03",
    stub=STUB,
    hints=(
        "Prefill gives the first token. After that each round is the same: add the token, see whether there is a "
        "reason to stop, and only then decode it, which gives the next one.",
        "Begin with `cache, token = engine.prefill(ids, cache)` and `while True:`. In the loop append the token, make "
        "the text of all tokens, and ask the four questions one after the other, each with its own return.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_COUNTING, EOS_FIRST, WITH_LOGITS),
    run=run,
)
