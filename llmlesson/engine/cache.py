"""The KV cache: for every layer the keys and values of all positions read so far.

The forward pass asks two things of a cache: the positions of the new tokens, and, layer by layer, to store their K and
V and compute attention. Any class that does both works as a cache: a paged one, for instance, or one of many sequences.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from llmlesson.engine.attention import attend
from llmlesson.errors import LessonError, whole_number


class Attends(Protocol):
    """What the forward pass needs of a cache."""

    def positions(self, tokens: int) -> Tensor:
        """The positions of the next `tokens` tokens of each sequence: int64 [B, T]."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store K and V of the new tokens, [B, Hkv, T, D]; their Q, [B, Hq, T, D], attends to all it may see.

        Returns [B, Hq, T, D].
        """


class Cache(Attends, Protocol):
    """What the engine needs as well: a cache of one sequence, which grows and can be truncated."""

    owner: object  # the model that made these keys and values; no other may continue them

    @property
    def length(self) -> int:
        """Positions in use."""

    @property
    def max_tokens(self) -> int:
        """Positions that fit."""

    @property
    def nbytes(self) -> int:
        """Bytes in use."""

    def keys(self, layer: int) -> Tensor:
        """The keys of one layer, [kv_heads, length, head_dim]."""

    def values(self, layer: int) -> Tensor:
        """The values of one layer, [kv_heads, length, head_dim]."""

    def require_room(self, tokens: int) -> None:
        """Raise LessonError unless `tokens` more positions fit."""

    def advance(self, tokens: int) -> None:
        """Count the last `tokens` positions written as in use, in all layers at once."""

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on; the earlier ones are left untouched."""


class KVCache:
    """Keys and values of one sequence, allocated once for `max_tokens` positions and filled from the left.

    Each layer has one tensor for K and one for V, `[batch, kv_heads, max_tokens, head_dim]`. A forward pass writes new
    positions layer by layer, and `advance` then makes them count. So a pass that fails midway leaves the cache as it
    was.
    """

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        max_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
        owner: object = None,
        batch: int = 1,
    ) -> None:
        shape = (batch, num_kv_heads, max_tokens, head_dim)  # [B, Hkv, S, D]
        # Zeros, because a masked slot is still multiplied by its weight 0, and 0 · NaN would be NaN.
        self._keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self._values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self._length = 0
        self.owner = owner  # the model that made these keys and values; no other may continue them

    @property
    def length(self) -> int:
        """Positions in use."""
        return self._length

    @property
    def max_tokens(self) -> int:
        """Positions that fit."""
        return self._keys[0].shape[2]

    @property
    def num_layers(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Bytes in use: 2 · layers · kv_heads · length · head_dim · bytes per value."""
        return self.length * self.allocated_nbytes // self.max_tokens

    @property
    def allocated_nbytes(self) -> int:
        """Bytes allocated, used or not."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    def keys(self, layer: int) -> Tensor:
        """The keys of one layer, [kv_heads, length, head_dim]: a view, not a copy."""
        return self._keys[self._layer(layer)][0, :, : self._length]

    def values(self, layer: int) -> Tensor:
        """The values of one layer, [kv_heads, length, head_dim]: a view, not a copy."""
        return self._values[self._layer(layer)][0, :, : self._length]

    def require_room(self, tokens: int) -> None:
        """Raise LessonError unless `tokens` more positions fit."""
        if self._length + tokens > self.max_tokens:
            raise LessonError(
                f"The KV cache is full: it holds {self._length} of {self.max_tokens} positions, and {tokens} more "
                f"{'is' if tokens == 1 else 'are'} needed. Make a larger one with engine.new_cache(max_tokens) and "
                "prefill into it, or drop the end of this one with cache.truncate(length)."
            )

    def positions(self, tokens: int) -> Tensor:
        return torch.arange(self._length, self._length + tokens, device=self._keys[0].device)[None]  # [B, T]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        start, end = self._length, self._length + k.shape[2]
        self._keys[layer][:, :, start:end] = k
        self._values[layer][:, :, start:end] = v
        return attend(q, self._keys[layer][:, :, :end], self._values[layer][:, :, :end])  # [B, Hq, T, D]

    def advance(self, tokens: int) -> None:
        """Count the last `tokens` positions written as in use, in all layers at once."""
        self._length += tokens

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on; the earlier ones are left untouched."""
        if not 0 <= whole_number(length, "length", least=-(2**63)) <= self._length:
            raise LessonError(f"Can't truncate to {length} positions: the cache holds {self._length}.")
        self._length = length

    def _layer(self, layer: int) -> int:
        return whole_number(layer, "layer", 0, self.num_layers - 1)

    def clone(self) -> KVCache:
        """An independent copy with the same capacity."""
        copy = object.__new__(KVCache)
        copy._keys = [tensor.clone() for tensor in self._keys]
        copy._values = [tensor.clone() for tensor in self._values]
        copy._length, copy.owner = self._length, self.owner
        return copy

    def fixed_step(self, positions: Tensor, span: int) -> FixedStep:
        """This cache for one decode step whose shapes don't depend on the current length."""
        return FixedStep(self._keys, self._values, positions, span)

    def __repr__(self) -> str:
        _, kv_heads, _, head_dim = self._keys[0].shape
        return (
            f"KVCache({self._length} of {self.max_tokens} positions, {self.num_layers} layers × 2 × {kv_heads} heads "
            f"× {head_dim} values, {self.nbytes:,} bytes in use)"
        )


class FixedStep:
    """Stores one token of each sequence at a position held in a tensor, and attends over a fixed span of slots.

    This way sequences of different lengths can step together, and a CUDA graph can replay the step: no shape and no
    kernel launch changes from one token to the next. The mask hides slots beyond a sequence's position.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], positions: Tensor, span: int) -> None:
        self._keys, self._values, self._positions, self._span = keys, values, positions, span  # positions: [B]
        self._rows = torch.arange(len(positions), device=positions.device)  # [B]
        slots = torch.arange(span, device=positions.device)
        self._mask = (slots <= positions[:, None])[:, None, None, :]  # [B, 1, 1, S]

    def positions(self, tokens: int) -> Tensor:
        return self._positions[:, None]  # [B, 1]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._keys[layer][self._rows, :, self._positions] = k[:, :, 0]
        self._values[layer][self._rows, :, self._positions] = v[:, :, 0]
        span = slice(self._span)
        return attend(q, self._keys[layer][:, :, span], self._values[layer][:, :, span], self._mask)  # [B, Hq, 1, D]
