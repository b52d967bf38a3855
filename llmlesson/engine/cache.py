"""The KV cache: for every layer the keys and values of all positions read so far."""

from __future__ import annotations

import torch
from torch import Tensor

from llmlesson.errors import LessonError


class KVCache:
    """Keys and values of one sequence, allocated once for `max_tokens` positions and filled from the left.

    Each layer has one tensor for K and one for V, `[batch, kv_heads, max_tokens, head_dim]`. The model writes new
    positions with `write`, layer by layer, and only then makes them count with `advance`: a forward pass that fails
    midway leaves the cache as it was.
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
    ) -> None:
        shape = (1, num_kv_heads, max_tokens, head_dim)  # [B, Hkv, S, D]
        self._keys = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self._values = [torch.empty(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self._length = 0
        self.owner = owner  # the model whose keys and values these are; no other may continue them

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
        return self._keys[layer][0, :, : self._length]

    def values(self, layer: int) -> Tensor:
        """The values of one layer, [kv_heads, length, head_dim]: a view, not a copy."""
        return self._values[layer][0, :, : self._length]

    def require_room(self, tokens: int) -> None:
        """Raise LessonError unless `tokens` more positions fit."""
        if self._length + tokens > self.max_tokens:
            raise LessonError(
                f"The KV cache is full: it holds {self._length} of {self.max_tokens} positions, and {tokens} more "
                f"{'is' if tokens == 1 else 'are'} needed. Make a larger one with engine.new_cache(max_tokens) and "
                "prefill into it, or drop the end of this one with cache.truncate(length)."
            )

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the K and V of T new positions, [B, Hkv, T, D]; return those of all positions, [B, Hkv, S, D]."""
        start, end = self._length, self._length + keys.shape[2]
        self._keys[layer][:, :, start:end] = keys
        self._values[layer][:, :, start:end] = values
        return self._keys[layer][:, :, :end], self._values[layer][:, :, :end]

    def advance(self, tokens: int) -> None:
        """Make the last `tokens` written positions count, in all layers at once."""
        self._length += tokens

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on; what stays is not touched."""
        if not 0 <= length <= self._length:
            raise LessonError(f"Can't truncate to {length} positions: the cache holds {self._length}.")
        self._length = length

    def clone(self) -> KVCache:
        """An independent copy, of the same capacity."""
        copy = object.__new__(KVCache)
        copy._keys = [tensor.clone() for tensor in self._keys]
        copy._values = [tensor.clone() for tensor in self._values]
        copy._length, copy.owner = self._length, self.owner
        return copy

    def __repr__(self) -> str:
        _, kv_heads, _, head_dim = self._keys[0].shape
        return (
            f"KVCache({self._length} of {self.max_tokens} positions, {self.num_layers} layers × 2 × {kv_heads} heads "
            f"× {head_dim} values, {self.nbytes:,} bytes in use)"
        )
