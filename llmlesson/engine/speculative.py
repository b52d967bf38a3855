"""Speculative decoding (Leviathan et al., arXiv 2211.17192): guess the next tokens, read all guesses in one forward
pass, and keep those that the model chooses itself.

The pass gives the scores after each guess. From each in turn the request chooses its token as always, by the best score
or at random; while that is the guess, the next scores hold too. After the first that differs, they don't: the guesses
behind it leave the cache. So every token is drawn from the model's own distribution, whatever the guesses are, and with
the same random numbers as without them. A guess x is kept with probability p(x), as by the paper's rule for a guesser
that is sure of x.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from llmlesson.engine.cache import KVCache
from llmlesson.engine.config import ModelConfig
from llmlesson.engine.generation import Step
from llmlesson.engine.request import Request
from llmlesson.errors import LessonError, whole_number

PLAIN = 2  # passes without guesses, before the first with them: what they cost decides whether guessing pays
WINDOW = 8  # passes with guesses, after which that is decided
REST = 32  # passes without guesses after it didn't pay; twice as many each further time


class Reader(Protocol):
    """What is needed of an engine."""

    @property
    def config(self) -> ModelConfig: ...
    def new_cache(self, max_tokens: int) -> KVCache: ...
    def read(self, ids: list[int], cache: KVCache) -> Tensor: ...
    def logits(self, ids: list[int], cache: KVCache) -> Tensor: ...


class Drafter(Protocol):
    """Whoever guesses."""

    def guess(self, tokens: list[int], most: int) -> list[int]:
        """At most `most` tokens that may come after these; none where it has no idea."""


class PromptLookup:
    """Guesses that the text repeats itself: what followed the last few tokens when they came before.

    longest, shortest: how many of the last tokens to look for, the longest match first. A match of one token is mostly
    chance.
    """

    def __init__(self, longest: int = 3, shortest: int = 2) -> None:
        self.longest = whole_number(longest, "longest")
        self.shortest = whole_number(shortest, "shortest", 1, self.longest)

    def guess(self, tokens: list[int], most: int) -> list[int]:
        for size in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            end = tokens[-size:]
            for start in range(len(tokens) - size - 1, -1, -1):  # the latest first
                if tokens[start : start + size] == end:
                    return tokens[start + size : start + size + most]
        return []


class DraftModel:
    """Guesses with a smaller model's best tokens. Both models need the same vocabulary."""

    def __init__(self, engine: Reader) -> None:
        self.engine = engine
        self._cache = engine.new_cache(engine.config.max_position_embeddings)
        self._read: list[int] = []  # what its cache holds

    def guess(self, tokens: list[int], most: int) -> list[int]:
        most = min(most, self._cache.max_tokens - len(tokens))
        if most < 1:
            return []
        same = 0  # the last token is read again, if need be: its scores are wanted
        while same < min(len(self._read), len(tokens) - 1) and self._read[same] == tokens[same]:
            same += 1
        self._cache.truncate(same)
        guesses = [int(self.engine.read(tokens[same:], self._cache).argmax())]
        while len(guesses) < most:
            guesses.append(int(self.engine.read(guesses[-1:], self._cache).argmax()))
        self._read = [*tokens, *guesses[:-1]]
        return guesses


class Speculation:
    """Guessing, for one answer after another: `engine.generate(prompt, speculation=Speculation(PromptLookup()))`.

    most: guesses in a pass. Where passes with guesses take more time for a token than passes without, both measured, it
    stops guessing for a while; see `report`. Use one object for one engine. On CUDA the graph is not used.
    """

    def __init__(self, drafter: Drafter, most: int = 5) -> None:
        self.drafter = drafter
        self.most = whole_number(most, "most")
        self.passes = 0  # forward passes after the prompt
        self.tokens = 0  # that these gave
        self.guessed = self.kept = 0
        self.rests = 0  # how often guessing did not pay
        self._plain: deque[float] = deque(maxlen=WINDOW)  # seconds of passes without guesses
        self._guessing: list[tuple[float, int]] = []  # seconds and tokens of passes with guesses
        self._rest = 0  # passes without guesses that are still to come

    def steps(self, engine: Reader, request: Request, cache: KVCache) -> Iterator[Step]:
        """The steps of an answer, as `Engine.stream` gives them. The first token of a pass took all of its time."""
        started = time.perf_counter()
        guesses: list[int] = []
        rows = engine.read(request.ids, cache)[None]  # [1, V]
        while True:
            seconds = took = time.perf_counter() - started
            cache.truncate(cache.length - len(guesses))  # each counts again once it is chosen
            kept = 0
            try:
                for scores, guess in zip(rows, [*guesses, None], strict=True):
                    step = request.take(scores)
                    length = cache.length
                    yield replace(step, seconds=seconds, cache_length=length, cache_nbytes=cache.nbytes)
                    # A caller may have cut the cache, or continued it: then the scores that are left mean nothing.
                    if step.finish_reason or step.token_id != guess or cache.length != length:
                        break
                    cache.advance(1)
                    kept, seconds = kept + 1, 0.0
            finally:
                if len(request.token_ids) > 1:  # the prompt's pass gives the first
                    self._note(took, len(guesses), kept)
            if step.finish_reason:
                return
            started = time.perf_counter()
            room = min(request.max_new_tokens - len(request.token_ids), cache.max_tokens - cache.length) - 1
            guesses = self._guess(request.tokens, room)
            rows = engine.logits([step.token_id, *guesses], cache)  # [1 + guesses, V]

    @property
    def pays(self) -> bool:
        """Whether passes with guesses have given more tokens a second than passes without."""
        if not self._guessing or not self._plain:
            return True
        seconds, tokens = (sum(column) for column in zip(*self._guessing, strict=True))
        return tokens / seconds > len(self._plain) / sum(self._plain)

    def report(self) -> str:
        """What guessing has brought so far."""
        if not self.passes:
            return "No pass yet."
        text = f"{self.tokens} tokens in {self.passes} passes; {self.kept} of {self.guessed} guesses kept."
        if self.rests:
            often = "once" if self.rests == 1 else f"{self.rests} times"
            text += f" It stopped guessing for a while, {often}, since passes with guesses took longer for a token."
        return text

    def _guess(self, tokens: list[int], room: int) -> list[int]:
        if len(self._plain) < PLAIN:
            return []
        if self._rest:
            self._rest -= 1
            return []
        most = min(self.most, room)
        guesses = list(self.drafter.guess(tokens, most)) if most > 0 else []
        if len(guesses) > most:
            raise LessonError(f"{type(self.drafter).__name__} gave {len(guesses)} guesses: at most {most} fit here.")
        return guesses

    def _note(self, seconds: float, guesses: int, kept: int) -> None:
        """Take note of a pass, and of whether guessing pays."""
        self.passes += 1
        self.tokens += 1 + kept
        self.guessed += guesses
        self.kept += kept
        if not guesses:
            self._plain.append(seconds)
            return
        self._guessing.append((seconds, 1 + kept))
        if len(self._guessing) == WINDOW:
            if not self.pays:
                self._rest = REST * 2**self.rests
                self.rests += 1
            self._guessing.clear()
