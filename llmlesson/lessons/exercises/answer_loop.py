"""The loop at the heart of every LLM server, in its four lines."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake
from llmlesson.lessons.real import real_engine
from llmlesson.lessons.scripted import ENDS, ScriptedEngine

STUB = '''
def answer(engine, ids, emit):
    """Answer a prompt: call emit(token) for each token of the answer, as soon as it is there.

    engine.prefill(ids) reads the prompt and returns (cache, token), the first token of the answer.
    engine.decode(cache, token) reads one token and returns (cache, token), the next one.
    A token in engine.eos_token_ids says that the answer is over. It is not emitted, and nothing is decoded after it.
    """
    return ...
'''

SOLUTION = """
def answer(engine, ids, emit):
    cache, token = engine.prefill(ids)
    while token not in engine.eos_token_ids:
        emit(token)
        cache, token = engine.decode(cache, token)
"""

FOR_EVER = """
def answer(engine, ids, emit):
    cache, token = engine.prefill(ids)
    while True:
        if token in engine.eos_token_ids:
            return
        emit(token)
        _, token = engine.decode(cache, token)
"""

ALL_AT_ONCE = """
def answer(engine, ids, emit):
    cache, token = engine.prefill(ids)
    tokens = []
    while token not in engine.eos_token_ids:
        tokens.append(token)
        cache, token = engine.decode(cache, token)
    for token in tokens:
        emit(token)
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace(
            "        emit(token)\n        cache, token = engine.decode(cache, token)",
            "        cache, token = engine.decode(cache, token)\n        emit(token)",
        ),
        "The first token is lost: it comes from prefill, and is part of the answer. Emit a token before you decode it.",
    ),
    Mistake(
        """
def answer(engine, ids, emit):
    cache, token = engine.prefill(ids)
    emit(token)
    while token not in engine.eos_token_ids:
        cache, token = engine.decode(cache, token)
        emit(token)
""",
        "The end-of-sequence token went out as well. It is a signal and no part of the answer: ask first, then emit.",
    ),
    Mistake(
        """
def answer(engine, ids, emit):
    cache, token = engine.prefill(ids)
    while True:
        emit(token)
        cache, token = engine.decode(cache, token)
        if token in engine.eos_token_ids:
            return
""",
        "You never ask whether the first token ends the answer. It is a token like any other.",
    ),
    Mistake(
        ALL_AT_ONCE,
        "Each token should be emitted as soon as it is there, before the next one is computed. That is what streaming "
        "is: here the user waits until the whole answer is done.",
    ),
    Mistake(
        SOLUTION.replace("cache, token = engine.decode(cache, token)", "engine.decode(cache, token)"),
        "You emit the same token again and again. Keep what decode returns: the cache, and the next token.",
    ),
    Mistake(
        SOLUTION.replace("engine.decode(cache, token)", "engine.prefill([*ids, token])"),
        "You read the prompt again for each token. Its cache is there: decode reads only the new token.",
    ),
    Mistake(
        SOLUTION.replace("while token not in engine.eos_token_ids", "while token != max(engine.eos_token_ids)"),
        "There can be several end-of-sequence tokens, and each of them ends the answer. Ask with `in`.",
    ),
    Mistake(
        SOLUTION.replace("    while token", "    if token"),
        "One step is not enough: repeat it until the answer ends.",
    ),
    Mistake("def answer(engine, ids, emit):\n    cache, token = engine.prefill(ids)\n", says="Its length is"),
)

PROMPT = [101, 102, 103]  # behind every id of a script
FAR_TOO_MANY = 40  # calls that only an endless loop makes


class _Endless(BaseException):
    """Not an Exception, so that no `except Exception` of a learner keeps it."""


class Watched:
    """An engine that notes, in one list, what is emitted and what is asked of it."""

    def __init__(self, engine: Any, log: list[tuple[str, Any]]) -> None:
        self.tokenizer, self.eos_token_ids = engine.tokenizer, engine.eos_token_ids
        self._engine, self._log = engine, log

    def prefill(self, ids: Sequence[int]) -> tuple[Any, int]:
        self._note("prefill", len(ids))
        found: tuple[Any, int] = self._engine.prefill(ids)
        return found

    def decode(self, cache: Any, token: int) -> tuple[Any, int]:
        self._note("decode", token)
        found: tuple[Any, int] = self._engine.decode(cache, token)
        return found

    def emit(self, token: int) -> None:
        self._note("emit", token)

    def _note(self, what: str, value: Any) -> None:
        if len(self._log) >= FAR_TOO_MANY:
            raise _Endless
        self._log.append((what, value))


def run(function: Function, engine: Any, ids: list[int]) -> list[tuple[str, Any]]:
    """What the function does, in order: ("prefill", 3), ("emit", token), ("decode", token) … Ends an endless loop."""
    log: list[tuple[str, Any]] = []
    watched = Watched(engine, log)
    with suppress(_Endless):
        function(watched, list(ids), watched.emit)
    return log


def expected(ids: Sequence[int], tokens: Sequence[int]) -> list[tuple[str, Any]]:
    """The same, for an answer of these tokens."""
    return [("prefill", len(ids))] + [(what, token) for token in tokens for what in ("emit", "decode")]


def case(script: list[str], origin: str = "fixed") -> Case:
    engine = ScriptedEngine(script)
    tokens = [engine.tokenizer.pieces.index(piece) for piece in script if piece not in ENDS]
    return Case((engine, PROMPT), expected(PROMPT, tokens), origin=origin)


def cases(rng: random.Random) -> Iterator[Case]:
    yield case(["Hi", "!", "<end>"])
    yield case(["one", " two", " three", "<end>"])
    yield case(["<end>"])
    yield case(["Hi", "<end of text>"])
    for _ in range(10):
        words = rng.sample(["a", "b", "ab", "ba", "c", " ", "cb", "bc"], rng.randrange(6))
        yield case([*words, rng.choice(ENDS)], origin="random")
    yield Case((real_engine(), real_ids()), expected(real_ids(), real_answer()), origin="real model")


@cache
def real_ids() -> list[int]:
    return real_engine().tokenizer.chat("What is the capital of France?")


@cache
def real_answer() -> list[int]:
    """What the engine itself answers, without its last token, which ends the answer."""
    return real_engine().generate(real_ids(), 20).token_ids[:-1]


EXERCISE = Exercise(
    lesson="00",
    stub=STUB,
    hints=(
        "Prefill once, for the first token. Then the same two things again and again: hand the token out, and decode "
        "it to get the next. What ends it?",
        "cache, token = engine.prefill(ids) is the first line, and `while token not in engine.eos_token_ids:` the "
        "second. Two lines are left, both inside the loop.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(FOR_EVER,),
    run=run,
)
