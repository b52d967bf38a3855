"""The forward pass: token ids in, logits out, K and V left in the cache. This is the whole model.

Shapes: B sequences, T new positions, S positions in all, H hidden_size, D head_dim, Hq query and Hkv key-value heads,
I intermediate_size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from llmlesson.engine.attention import attend
from llmlesson.engine.cache import KVCache
from llmlesson.engine.config import ModelConfig
from llmlesson.engine.rope import inverse_frequencies, rotate, rotation


@dataclass
class Layer:
    """The weights of one layer. Matrices are stored as [in, out], so that they are applied as `x @ w`.

    A checkpoint has them as [out, in]. For the single row of a decode step, CPU kernels read the [in, out] layout at
    up to twice the speed; for the many rows of prefill the two are alike.
    """

    attention_norm: Tensor  # [H]
    qkv: Tensor  # [H, (Hq + 2 Hkv) D]: the projections to Q, K and V side by side, one product instead of three
    qkv_bias: Tensor | None  # [(Hq + 2 Hkv) D]
    q_norm: Tensor | None  # [D]
    k_norm: Tensor | None  # [D]
    out: Tensor  # [Hq D, H]
    mlp_norm: Tensor  # [H]
    gate_up: Tensor  # [H, 2 I]
    down: Tensor  # [I, H]
    uses_rope: bool


@dataclass
class Model:
    """A decoder-only transformer: embedding, layers, norm, output head."""

    config: ModelConfig
    embedding: Tensor  # [V, H]; a tied one is a transposed view of the head
    layers: list[Layer]
    norm: Tensor  # [H]
    head: Tensor  # [H, V]

    def __post_init__(self) -> None:
        self.frequencies = inverse_frequencies(self.config).to(self.norm.device)  # [D/2]

    def forward(self, ids: Tensor, cache: KVCache, last_only: bool) -> Tensor:
        """Read `ids` at the positions that follow the cache's, and append their K and V to it.

        ids: [T] int64. Returns float32 logits: [V] after the last id if `last_only`, else [T, V].
        """
        start = cache.length
        positions = torch.arange(start, start + len(ids), device=ids.device)  # [T]
        cos, sin = rotation(self.frequencies, positions)  # [T, D/2]
        x = self.embedding[ids][None]  # [B, T, H]
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.attention_norm), cos, sin, cache)
            x = x + self._mlp(layer, self._norm(x, layer.mlp_norm))
        cache.advance(len(ids))
        x = x[0, -1] if last_only else x[0]  # [H] or [T, H]
        return (self._norm(x, self.norm) @ self.head).float()

    def _attention(self, index: int, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor, cache: KVCache) -> Tensor:
        c = self.config
        heads, kv_heads, head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        batch, tokens, _ = x.shape
        qkv = x @ layer.qkv  # [B, T, (Hq + 2 Hkv) D]
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        qkv = qkv.view(batch, tokens, heads + 2 * kv_heads, head_dim).transpose(1, 2)  # [B, Hq + 2 Hkv, T, D]
        q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
        if layer.uses_rope:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cache.write(index, k, v)  # [B, Hkv, S, D]
        out = attend(q, k, v)  # [B, Hq, T, D]
        return out.transpose(1, 2).reshape(batch, tokens, heads * head_dim) @ layer.out

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        gate, up = (x @ layer.gate_up).chunk(2, dim=-1)  # [B, T, I] each
        return (F.silu(gate) * up) @ layer.down  # SwiGLU (Shazeer, arXiv 2002.05202)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm (Zhang and Sennrich, arXiv 1910.07467), in float32 whatever the dtype of x."""
        x32 = x.float()
        x32 = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return x32.to(x.dtype) * weight
