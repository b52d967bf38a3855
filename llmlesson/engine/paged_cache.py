"""A KV cache in blocks: many texts in one storage, each found through its table of blocks.

A block has room for K and V of `block_size` positions, in all layers. Position p of a text is in block
table[p // block_size], at offset p % block_size. So a text grows one block at a time, wherever one is free, and texts
with the same beginning can share their first blocks. The code in batching/ decides which text gets which block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from llmlesson.engine.attention import attend


@dataclass(frozen=True)
class Span:
    """`count` new tokens of one text, from position `start` on. Its table has blocks for all positions up to `end`."""

    table: Sequence[int]
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


class PagedCache:
    """K and V of all layers for `num_blocks` blocks of `block_size` positions, allocated once."""

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        owner: object = None,
    ) -> None:
        # One extra block, which stays zero, pads the shorter rows of a step.
        shape = (2, num_layers, num_kv_heads, num_blocks + 1, block_size, head_dim)  # [2, L, Hkv, blocks, size, D]
        self._storage = torch.zeros(shape, dtype=dtype, device=device)
        # Views of it, made once: one by block to gather from, one by slot to write to.
        self._by_block = self._storage.unbind(1)  # L × [2, Hkv, blocks, size, D]
        self._by_slot = [tuple(layer.flatten(2, 3)) for layer in self._by_block]  # L × (K, V), [Hkv, slots, D] each
        self.num_blocks, self.block_size = num_blocks, block_size
        self.owner = owner  # the model that made these keys and values

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of all blocks, in use or not."""
        return self._storage.nbytes

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one position, in all layers."""
        return self._storage.nbytes // ((self.num_blocks + 1) * self.block_size)

    def keys(self, layer: int, table: Sequence[int], length: int) -> Tensor:
        """The keys of one text, gathered from its blocks: a copy, [kv_heads, length, head_dim]."""
        return self._gather(layer, self._tensor(table))[0, :, :length]

    def values(self, layer: int, table: Sequence[int], length: int) -> Tensor:
        """The values of one text, gathered from its blocks: a copy, [kv_heads, length, head_dim]."""
        return self._gather(layer, self._tensor(table))[1, :, :length]

    def step(self, spans: Sequence[Span]) -> PagedStep:
        """The cache for one forward pass over the new tokens of all these texts, one after another, ids [1, N]."""
        return PagedStep(self, spans)

    def clear_blocks_begun(self, spans: Sequence[Span]) -> None:
        """Zero the blocks that these spans begin to fill but don't fill up.

        What another text left in such a block would be read with weight 0; but 0 · NaN is NaN.
        """
        size = self.block_size
        begun = [span.table[span.end // size] for span in spans if span.end % size and span.count >= span.end % size]
        if begun:
            self._storage.index_fill_(3, self._tensor(begun), 0)

    def _gather(self, layer: int, table: Tensor) -> Tensor:
        """K and V of these blocks [n], one after another: [2, Hkv, n · size, D]."""
        return self._by_block[layer].index_select(2, table).flatten(2, 3)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self._storage.device)


class PagedStep:
    """What the forward pass sees of a paged cache: new tokens of several texts, flattened to one sequence of N.

    Every matrix product of the model is then one product over all N rows, no matter which text they belong to. Only
    attention treats texts separately: all spans of a single token together, padded to the longest, and each longer
    span alone. (Selective batching: Yu et al., Orca, OSDI 2022.)
    """

    def __init__(self, cache: PagedCache, spans: Sequence[Span]) -> None:
        self._cache = cache
        size = cache.block_size
        positions = [p for span in spans for p in range(span.start, span.end)]
        slots = [span.table[p // size] * size + p % size for span in spans for p in range(span.start, span.end)]
        self._positions = cache._tensor(positions)[None]  # [1, N]
        self._slots = cache._tensor(slots)  # [N]
        cache.clear_blocks_begun(spans)

        first, single, self._chunks = 0, [], []
        for span in spans:
            if span.count == 1:
                single.append((first, span))
            else:
                self._chunks.append(self._chunk(first, span))
            first += span.count
        self._rows: Tensor | None = None  # [R], the rows of single-token spans among the N
        if len(single) == 1:
            self._chunks.append(self._chunk(*single[0]))  # needs no padding
        elif single:
            self._rows = cache._tensor([row for row, _ in single])
            blocks = max(-(-span.end // size) for _, span in single)
            padding = [cache.num_blocks] * blocks
            tables = [[*span.table[: -(-span.end // size)], *padding][:blocks] for _, span in single]
            self._tables = cache._tensor([block for table in tables for block in table])  # [R · blocks]
            ends = cache._tensor([span.end for _, span in single])  # [R]
            places = torch.arange(blocks * size, device=ends.device)
            self._mask = (places < ends[:, None])[:, None, None]  # [R, 1, 1, S]

    def positions(self, tokens: int) -> Tensor:
        return self._positions

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self._cache._by_slot[layer]
        keys.index_copy_(1, self._slots, k[0])
        values.index_copy_(1, self._slots, v[0])
        if self._rows is None and len(self._chunks) == 1:
            return self._attend_chunk(layer, q, *self._chunks[0][1:])
        out = torch.empty_like(q)  # [1, Hq, N, D]
        for rows, table, end in self._chunks:
            out[:, :, rows] = self._attend_chunk(layer, q[:, :, rows], table, end)
        if self._rows is not None:
            out[0, :, self._rows] = self._attend_rows(layer, q[0, :, self._rows])
        return out

    def _attend_chunk(self, layer: int, q: Tensor, table: Tensor, end: int) -> Tensor:
        """q: [1, Hq, T, D], the last T of `end` positions. Returns the same shape."""
        k, v = self._cache._gather(layer, table)[:, None, :, :end]  # [1, Hkv, S, D] each
        return attend(q, k, v)

    def _attend_rows(self, layer: int, q: Tensor) -> Tensor:
        """q: [Hq, R, D], one position of each of R texts. Returns the same shape."""
        gathered = self._cache._gather(layer, self._tables).unflatten(2, (q.shape[1], -1))  # [2, Hkv, R, S, D]
        k, v = gathered.transpose(1, 2)  # [R, Hkv, S, D] each
        return attend(q.transpose(0, 1)[:, :, None], k, v, self._mask)[:, :, 0].transpose(0, 1)

    def _chunk(self, first: int, span: Span) -> tuple[slice, Tensor, int]:
        """A span's rows among the N, the part of its table that is needed, and where it ends."""
        blocks = -(-span.end // self._cache.block_size)
        return slice(first, first + span.count), self._cache._tensor(span.table[:blocks]), span.end
