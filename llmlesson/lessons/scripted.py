"""An engine that follows a script, for exercises whose code calls one: quick, and every case can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from llmlesson.errors import LessonError

ENDS = ("<end>", "<end of text>")  # their ids, 0 and 1, are the end-of-sequence ids
# What you get if you go on although the answer was complete.
TAIL = (" and", " so", " on", ENDS[0])

Piece = str | bytes  # bytes where a token holds only a part of a character


class ScriptedCache:
    """Counts positions like a KV cache, but stores nothing."""

    def __init__(self, max_tokens: int, length: int = 0) -> None:
        self.max_tokens = max_tokens
        self.length = length

    def append(self, tokens: int) -> None:
        """Raises LessonError, with the length unchanged, if so many do not fit."""
        if self.length + tokens > self.max_tokens:
            raise LessonError(f"The KV cache is full: it holds {self.length} of {self.max_tokens} positions.")
        self.length += tokens

    def clone(self) -> ScriptedCache:
        return ScriptedCache(self.max_tokens, self.length)

    def __repr__(self) -> str:
        return f"a cache with room for {self.max_tokens} positions"


class ScriptedTokenizer:
    """Ids are indexes into a list of pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = list(pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """Bytes that are no whole character become U+FFFD, as with a real tokenizer."""
        pieces = [self.pieces[i] for i in ids if i >= len(ENDS)]
        return b"".join(p.encode() if isinstance(p, str) else p for p in pieces).decode(errors="replace")


class ScriptedEngine:
    """Gives the pieces of a script, all different, one after the other; has `Engine`'s prefill, decode and logits.

    What comes next depends only on the last token that was read. After the script's end it goes on for a few tokens.
    `read` counts the tokens that were read.
    """

    def __init__(self, script: Sequence[Piece]) -> None:
        self.script = list(script)
        self._all = [*script, *TAIL]
        self.tokenizer = ScriptedTokenizer([*ENDS, *(piece for piece in self._all if piece not in ENDS)])
        self.eos_token_ids = frozenset(range(len(ENDS)))
        self.read = 0

    def prefill(self, ids: Sequence[int], cache: ScriptedCache | None = None) -> tuple[ScriptedCache, int]:
        cache = cache or ScriptedCache(1024)
        cache.append(len(ids))
        self.read += len(ids)
        return cache, self._after(ids[-1])

    def decode(self, cache: ScriptedCache, token: int) -> tuple[ScriptedCache, int]:
        if not isinstance(token, int):
            raise LessonError(f"decode reads one token, a whole number; it was given {token!r}.")
        if token in self.eos_token_ids:
            raise LessonError("decode was given an end-of-sequence token: the answer had ended there.")
        return self.prefill([token], cache)

    def logits(self, ids: Sequence[int], cache: ScriptedCache | None = None) -> Tensor:
        self.prefill(ids, cache)
        after = torch.tensor([self._after(token) for token in ids])
        return torch.nn.functional.one_hot(after, len(self.tokenizer.pieces)).float()

    def generate(self, *args: object, **kwargs: object) -> NoReturn:
        raise LessonError(
            "engine.generate and engine.stream are this very loop, ready-made. Here you write the loop yourself: "
            "engine.prefill and engine.decode are all it needs."
        )

    stream = generate

    def clone(self) -> ScriptedEngine:
        return ScriptedEngine(self.script)

    def _after(self, token: int) -> int:
        place = token - len(ENDS) + 1 if token < len(self.tokenizer.pieces) else 0  # else it is a prompt's
        return self.tokenizer.pieces.index(self._all[place])

    def __repr__(self) -> str:
        return f"an engine that gives {', '.join(map(repr, self.script))}"
