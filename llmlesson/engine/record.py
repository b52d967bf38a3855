"""Keeps what a forward pass computes on its way, for lessons and widgets to show."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from llmlesson.engine.attention import attention_weights


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

    def __getitem__(self, layer: int) -> LayerRecord:
        return self.passes[-1][layer]

    def start_pass(self) -> None:
        self.passes.append({})

    def keep(self, layer: int, before: Tensor, after: Tensor, q: Tensor, k: Tensor, v: Tensor) -> None:
        """All with a leading dimension for the batch, which must be one."""
        before, after, q, k, v = (tensor[0].detach().cpu().clone() for tensor in (before, after, q, k, v))
        self.passes[-1][layer] = LayerRecord(before, after, q, k, v, attention_weights(q, k))
