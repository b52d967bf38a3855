"""An engine that answers by a script, for exercises whose code calls one: quick, and every case can be read."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.errors import LessonError

ENDS = ("<end>", "<end of text>")  # their ids, 0 and 1, are the end-of-sequence ids


class ScriptedCache:
    """Counts positions as a KV cache does, and holds nothing."""

    def __init__(self, max_tokens: int, length: int = 0) -> None:
        self.max_tokens = max_tokens
        self.length = length

    def append(self, tokens: int) -> None:
        """Raises LessonError, with the length as before, where so many do not fit."""
        if self.length + tokens > self.max_tokens:
            raise LessonError(f"The KV cache is full: it holds {self.length} of {self.max_tokens} positions.")
        self.length += tokens

    def clone(self) -> ScriptedCache:
        return ScriptedCache(self.max_tokens, self.length)

    def __repr__(self) -> str:
        return f"a cache with room for {self.max_tokens} positions"


class ScriptedTokenizer:
    """Ids are indexes into a list of pieces of text."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = list(pieces)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i] for i in ids if i >= len(ENDS))


class ScriptedEngine:
    """Gives the pieces of a script, all different, one after the other; has `Engine`'s prefill and decode.

    What comes next depends on the token that is read, and on nothing else. A call that would go on behind the script's
    end raises LessonError: it should not have been made.
    """

    def __init__(self, script: Sequence[str]) -> None:
        self.script = list(script)
        self.tokenizer = ScriptedTokenizer([*ENDS, *(piece for piece in script if piece not in ENDS)])
        self.eos_token_ids = frozenset(range(len(ENDS)))

    def prefill(self, ids: Sequence[int], cache: ScriptedCache | None = None) -> tuple[ScriptedCache, int]:
        cache = cache or ScriptedCache(1024)
        cache.append(len(ids))
        return cache, self._token(0)

    def decode(self, cache: ScriptedCache, token: int) -> tuple[ScriptedCache, int]:
        if not isinstance(token, int):
            raise LessonError(f"decode reads one token, a whole number; it was given {token!r}.")
        if token in self.eos_token_ids:
            raise LessonError("decode was given an end-of-sequence token: the answer had ended there.")
        cache.append(1)
        return cache, self._token(token - len(ENDS) + 1)

    def _token(self, place: int) -> int:
        if place >= len(self.script):
            raise LessonError("decode was called once more than needed: the answer was complete.")
        return self.tokenizer.pieces.index(self.script[place])

    def __repr__(self) -> str:
        return f"an engine that gives {', '.join(map(repr, self.script))}"
