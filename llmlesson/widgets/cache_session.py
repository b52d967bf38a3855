"""The cache of one request, to look into after each step. No widget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmlesson.engine import Engine, KVCache
from llmlesson.widgets.decode_session import DecodeSession


@dataclass(frozen=True)
class Change:
    """What one step did to the cache."""

    name: str
    before: int  # positions
    after: int
    nbytes: int  # more than before; negative for fewer
    kept: bool  # the positions that were there before and still are: all bit for bit the same


class CacheSession:
    """A request that can be stepped, and its cache. Raises LessonError for a prompt that can't be read."""

    def __init__(self, engine: Engine, prompt: str | Sequence[int], chat: bool = True) -> None:
        self.engine = engine
        self.request = DecodeSession(engine, prompt, chat)
        self.change = Change("Prefill", 0, self.cache.length, self.cache.nbytes, True)

    @property
    def cache(self) -> KVCache:
        return self.request.cache

    @property
    def ids(self) -> list[int]:
        """The tokens whose K and V the cache holds."""
        return [*self.request.prompt_ids, *self.request.tokens[:-1]]

    def step(self) -> None:
        """Read one token. Raises LessonError if the answer has ended."""
        self._changed(f"Decode step {len(self.request.tokens)}", self.request.step)

    def back(self) -> None:
        """Undo the last step. Raises LessonError if only the prompt is left."""
        self._changed("Back", self.request.back)

    def reset(self) -> None:
        """Back to the prompt."""
        self._changed("Reset", self.request.reset)

    @property
    def bytes_per_layer(self) -> int:
        """As the config predicts: 2 · kv_heads · head_dim · positions · bytes per value."""
        c = self.engine.config
        return 2 * c.num_key_value_heads * c.head_dim * self.cache.length * self.engine.dtype.itemsize

    @property
    def predicted(self) -> int:
        """Bytes of the whole cache as the config predicts."""
        return self.engine.config.num_hidden_layers * self.bytes_per_layer

    @property
    def formula(self) -> str:
        """The arithmetic of `predicted`."""
        c, size = self.engine.config, self.engine.dtype.itemsize
        return (
            f"2 (K and V) × {c.num_hidden_layers} layers × {c.num_key_value_heads} KV heads × {c.head_dim} values × "
            f"{size} bytes × {self.cache.length} positions"
        )

    @property
    def measured(self) -> int:
        """Bytes that the cache says are in use."""
        return self.cache.nbytes

    def by_layer(self) -> list[tuple[int, int]]:
        """The predicted and the actual bytes of K and V, for each layer."""
        cache = self.cache
        return [(self.bytes_per_layer, cache.keys(i).nbytes + cache.values(i).nbytes) for i in range(cache.num_layers)]

    def window(self, kind: str, layer: int, head: int, last: int | None, columns: int) -> tuple[int, list[list[float]]]:
        """The vectors of at most `columns` positions up to `last` (None: the newest), and the index of the first.

        kind: "K" or "V". The vectors are [columns, head_dim]. A `last` beyond the cache means the newest. The window
        moves by a quarter of its width, so that a position keeps its place for some steps.
        """
        end = self.cache.length if last is None else min(last + 1, self.cache.length)
        jump = max(1, columns // 4)
        start = -(-max(0, end - columns) // jump) * jump
        return start, self._values(kind, layer)[head, start:end].float().tolist()

    def scale(self, kind: str, layer: int, head: int) -> float:
        """The largest size of a value among the prompt's positions: the same after each step, back and reset."""
        prompt = self._values(kind, layer)[head, : len(self.request.prompt_ids)]
        return float(prompt.float().abs().max())

    def strength(self, kind: str) -> list[list[float]]:
        """Mean absolute value over positions, by layer and head: [layers][kv_heads]."""
        return [self._values(kind, i).float().abs().mean(dim=(1, 2)).tolist() for i in range(self.cache.num_layers)]

    def _values(self, kind: str, layer: int) -> Tensor:
        return self.cache.keys(layer) if kind == "K" else self.cache.values(layer)

    def _changed(self, name: str, action: Callable[[], None]) -> None:
        before = self.cache.clone()
        action()
        same = min(before.length, self.cache.length)
        kept = all(
            torch.equal(ours[:, :same], theirs[:, :same])
            for i in range(before.num_layers)
            for ours, theirs in ((self.cache.keys(i), before.keys(i)), (self.cache.values(i), before.values(i)))
        )
        self.change = Change(name, before.length, self.cache.length, self.cache.nbytes - before.nbytes, kept)
