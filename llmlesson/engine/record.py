"""Keeps what a forward pass computes along the way, for lessons and widgets to show."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from llmlesson.engine.attention import attention_weights
from llmlesson.engine.cache import Cache


@dataclass(frozen=True)
class LayerRecord:
    """What one layer did in one forward pass over T new positions, S in all. Copies, on the CPU."""

    before: Tensor  # [T, H], the residual stream that came in
    after: Tensor  # [T, H], the residual stream that went out
    q: Tensor  # [Hq, T, D], after rotation
    k: Tensor  # [Hkv, S, D], after rotation, all that attention read
    v: Tensor  # [Hkv, S, D]
    weights: Tensor  # float32 [Hq, T, S]


@dataclass
class Recording:
    """The forward passes since `Engine.record()` began: `recording[layer]` is that layer in the last of them."""

    layers: Collection[int]
    passes: list[dict[int, LayerRecord]] = field(default_factory=list)
    _kept: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)  # of the pass under way: before, after, q

    def __getitem__(self, layer: int) -> LayerRecord:
        return self.passes[-1][layer]

    def keep(self, layer: int, before: Tensor, after: Tensor, q: Tensor) -> None:
        """Keep what one layer worked with: [B, T, H], [B, T, H] and [B, Hq, T, D], where B must be one."""
        self._kept[layer] = tuple(tensor[0].detach().cpu().clone() for tensor in (before, after, q))

    def end_pass(self, cache: Cache) -> None:
        """Call this after a pass, once the cache holds its K and V: attention read all that is there now."""
        done = {}
        for layer, (before, after, q) in self._kept.items():
            k, v = cache.keys(layer).cpu().clone(), cache.values(layer).cpu().clone()
            done[layer] = LayerRecord(before, after, q, k, v, attention_weights(q, k))
        self.passes.append(done)
        self._kept = {}
