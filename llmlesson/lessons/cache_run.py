"""The real model on a learner's KV cache: the same tokens, the same scores, and the time of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llmlesson.engine.attention import attend
from llmlesson.engine.engine import Engine
from llmlesson.errors import LessonError
from llmlesson.lessons.exercise import NotAsAsked, NotDone
from llmlesson.lessons.learners_cache import made_by
from llmlesson.lessons.report import Failure, Report
from llmlesson.views.exercise import report_html
from llmlesson.views.token_times import token_times

WRONG_LOGIT = 0.01  # float32 rounding stays far below


@dataclass(frozen=True, repr=False)
class CacheRun:
    """What came of it. Shown, it is the verdict and the two curves of time."""

    token_ids: list[int]
    same_tokens: bool  # as with the engine's own cache
    difference: float  # the largest of all logits of all steps
    seconds: list[float]  # for each token, with the learner's cache; the first is the prefill
    engine_seconds: list[float]  # the same with the engine's, in turns

    @property
    def right(self) -> bool:
        return self.same_tokens and self.difference < WRONG_LOGIT

    def __repr__(self) -> str:
        count = len(self.token_ids)
        if not self.right:
            tokens = "the same" if self.same_tokens else "not all the same"
            return (
                f"✗ In {count} tokens, logits with your cache differ from those with the engine's by up to "
                f"{self.difference:.3g}. Rounding stays below {WRONG_LOGIT}. The tokens are {tokens}."
            )
        logits = f"logits that differ by {self.difference:.1g} at most" if self.difference else "just the same logits"
        return (
            f"✓ Your cache carried the real model through {count} tokens: the same tokens as with the engine's cache, "
            f"and {logits}."
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        verdict = report_html("passed" if self.right else "failed", repr(self), [])
        curves = token_times({"your cache": self.seconds, "the engine's": self.engine_seconds})
        return {"text/html": verdict + curves.html, "text/plain": f"{self!r}\n{curves}"}


def run_cache(new_cache: Callable[..., Any], engine: Engine, ids: Sequence[int], tokens: int = 31) -> CacheRun | Report:
    """Let the engine answer a prompt (ids) twice, side by side: on a learner's cache, and on its own.

    new_cache(kv_heads, head_dim, max_tokens): as in the exercise kv-cache; one is made for each layer. Returns a report
    that it is not done, or that it failed on the way, where it is or did. Raises LessonError for fewer than 2 tokens.
    """
    if tokens < 2:
        raise LessonError(f"tokens is {tokens}: a curve needs at least 2.")
    room = len(ids) + tokens - 1
    try:
        mine = _Learners(new_cache, engine, room)
        engine.read(list(ids), engine.new_cache(room))  # a warm-up: the first pass of a length is slower
        return _run(engine, list(ids), tokens, mine)
    except NotDone as unfinished:
        missing = str(unfinished) or "Write your cache in the exercise above, then run this cell again."
        return Report("the real model on your cache", "new_cache", "not done", missing=missing)
    except (NotAsAsked, _Failed) as problem:
        return Report("the real model on your cache", "new_cache", "failed", failure=Failure(problem=str(problem)))


def _run(engine: Engine, unread: list[int], tokens: int, mine: _Learners) -> CacheRun:
    theirs = engine.new_cache(mine.max_tokens)
    made: list[int] = []
    seconds: tuple[list[float], list[float]] = [], []
    difference, same = 0.0, True
    for _ in range(tokens):
        logits = []
        for cache, spent in zip((mine, theirs), seconds, strict=True):
            started = time.perf_counter()
            logits.append(_read(engine, unread, cache))
            spent.append(time.perf_counter() - started)
        difference = max(difference, float((logits[0] - logits[1]).abs().max()))
        made.append(int(logits[1].argmax()))
        same = same and int(logits[0].argmax()) == made[-1]
        unread = made[-1:]
    return CacheRun(made, same, difference, *seconds)


class _Failed(Exception):
    """What went wrong in a learner's cache."""


def _read(engine: Engine, ids: list[int], cache: Any) -> Tensor:
    try:
        return engine.read(ids, cache)
    except LessonError:
        raise
    except Exception as error:
        raise _Failed(
            f"Your cache failed at position {cache.length} ({type(error).__name__}: {error}). "
            'lessons.check("kv-cache", new_cache) looks at it step by step.'
        ) from error


class _Learners:
    """A learner's cache for each layer, as the engine asks for one (see `llmlesson.engine.cache.Cache`)."""

    def __init__(self, new_cache: Callable[..., Any], engine: Engine, max_tokens: int) -> None:
        c = engine.config
        self.owner, self.max_tokens, self.length = engine.model, max_tokens, 0
        sizes = c.num_key_value_heads, c.head_dim, max_tokens
        with torch.device(engine.device):  # where the learner's torch.zeros takes its memory
            self.layers = [made_by(new_cache, *sizes) for _ in range(c.num_hidden_layers)]
        self._device = engine.device

    @property
    def nbytes(self) -> int:
        return sum(self.keys(i).nbytes + self.values(i).nbytes for i in range(len(self.layers)))

    def keys(self, layer: int) -> Tensor:
        return self._both(layer)[0]

    def values(self, layer: int) -> Tensor:
        return self._both(layer)[1]

    def require_room(self, tokens: int) -> None:
        if self.length + tokens > self.max_tokens:
            raise LessonError(f"The cache is full: it holds {self.length} of {self.max_tokens} positions.")

    def positions(self, tokens: int) -> Tensor:
        return torch.arange(self.length, self.length + tokens, device=self._device)[None]  # [B, T]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.layers[layer].append(k[0], v[0])  # [Hkv, S, D]
        return attend(q, keys[None], values[None])

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def truncate(self, length: int) -> None:
        for layer in self.layers:
            if layer.length > length:
                layer.truncate(length)
        self.length = length

    def _both(self, layer: int) -> tuple[Tensor, Tensor]:
        """By an append of nothing, since a learner's cache names its tensors as it likes."""
        c = self.owner.config
        nothing = torch.zeros(c.num_key_value_heads, 0, c.head_dim, device=self._device)
        keys, values = self.layers[layer].append(nothing, nothing)
        return keys, values
