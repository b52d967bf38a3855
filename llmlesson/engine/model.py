"""The forward pass: token ids in, logits out, K and V stored in the cache. This is the whole model.

Shapes: B sequences, T new positions, S positions in all, H hidden_size, D head_dim, Hq query and Hkv key-value heads,
I intermediate_size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from llmlesson.engine.cache import Attends
from llmlesson.engine.config import ModelConfig
from llmlesson.engine.product import product
from llmlesson.engine.quantized import Matrix
from llmlesson.engine.record import Recording
from llmlesson.engine.rope import inverse_frequencies, rotate, rotation


@dataclass
class Layer:
    """The weights of one layer. Matrices are stored as [in, out], for `x @ w`; a checkpoint has them as [out, in].

    For the single row of a decode step, CPU kernels read this layout up to twice as fast (see `product`); for the many
    rows of a prefill the two layouts are equally fast.
    """

    attention_norm: Tensor  # [H]
    qkv: Matrix  # [H, (Hq + 2 Hkv) D]: the projections to Q, K and V side by side, one product instead of three
    qkv_bias: Tensor | None  # [(Hq + 2 Hkv) D]
    qk_norm: Tensor | None  # [Hq + Hkv, 1, D]
    out: Matrix  # [Hq D, H]
    mlp_norm: Tensor  # [H]
    gate_up: Matrix  # [H, 2 I]
    down: Matrix  # [I, H]
    uses_rope: bool


def matrix_sizes(config: ModelConfig) -> tuple[tuple[int, int], ...]:
    """(in, out) of the four matrices of a layer, in the order of `Layer`."""
    c = config
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    h, i = c.hidden_size, c.intermediate_size
    return (h, q + 2 * kv), (q, h), (h, 2 * i), (i, h)


def vector_values(config: ModelConfig) -> int:
    """Values in the vectors of a layer: its norms, and the bias of Q, K and V where there is one."""
    c = config
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    return 2 * c.hidden_size + c.qkv_bias * (q + 2 * kv) + c.qk_norm * (q + kv)  # qk_norm is kept for every head


@dataclass
class Model:
    """A decoder-only transformer: embedding, layers, norm, output head."""

    config: ModelConfig
    embedding: Tensor  # [V, H]; a tied one is a transposed view of the head, where that is a tensor
    layers: list[Layer]
    norm: Tensor  # [H]
    head: Matrix  # [H, V]
    quantized: str | None = None  # "int8" or "int4" where matrices are stored that way
    recording: Recording | None = None  # set inside `with engine.record()`

    def __post_init__(self) -> None:
        self.frequencies = inverse_frequencies(self.config).to(self.norm.device)  # [D/2]

    @property
    def nbytes(self) -> int:
        """Bytes of weights that a forward pass reads: all but the embedding, of which it reads one row per token."""
        layers = (tensor for layer in self.layers for tensor in vars(layer).values() if hasattr(tensor, "nbytes"))
        return sum(tensor.nbytes for tensor in (*layers, self.norm, self.head))

    def forward(self, ids: Tensor, cache: Attends) -> Tensor:
        """Read the next tokens of each sequence; the cache stores their K and V, and attends.

        ids: [B, T] int64. Returns the residual stream after the last layer, [B, T, H]. Once this has returned, the
        caller makes the new positions count (`cache.advance`).
        """
        cos, sin = rotation(self.frequencies, cache.positions(ids.shape[1]))  # [B, 1, T, D/2]
        x = self.embedding[ids].to(self.norm.dtype)  # [B, T, H]
        for index, layer in enumerate(self.layers):
            before = x
            q, k, v = self._project(layer, self._norm(x, layer.attention_norm), cos, sin)
            attended = cache.attend(index, q, k, v)  # [B, Hq, T, D]
            x = x + product(attended.transpose(1, 2).flatten(2), layer.out)
            x = x + self._mlp(layer, self._norm(x, layer.mlp_norm))
            if self.recording is not None and index in self.recording.layers:
                self.recording.keep(index, before, x, q)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """The score of every token of the vocabulary: [..., H] → float32 [..., V]."""
        return product(self._norm(x, self.norm), self.head).float()

    def _project(self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q [B, Hq, T, D], K and V [B, Hkv, T, D] of new tokens, Q and K rotated to their positions."""
        c = self.config
        q_heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        qkv = product(x, layer.qkv)  # [B, T, (Hq + 2 Hkv) D]
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        heads = qkv.unflatten(-1, (-1, c.head_dim)).transpose(1, 2)  # [B, Hq + 2 Hkv, T, D]
        qk, v = heads.split((q_heads + kv_heads, kv_heads), dim=1)
        if layer.qk_norm is not None:
            qk = self._norm(qk, layer.qk_norm)
        if layer.uses_rope:
            qk = rotate(qk, cos, sin)
        q, k = qk.split((q_heads, kv_heads), dim=1)
        return q, k, v

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        gate, up = product(x, layer.gate_up).chunk(2, dim=-1)  # [B, T, I] each
        return product(F.silu(gate) * up, layer.down)  # SwiGLU (Shazeer, arXiv 2002.05202)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm (Zhang and Sennrich, arXiv 1910.07467), in float32 whatever the dtype of x."""
        return F.rms_norm(x.float(), x.shape[-1:], eps=self.config.rms_norm_eps).to(x.dtype) * weight
