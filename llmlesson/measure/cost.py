"""The counted work of one forward pass: exact FLOPs and bytes, from the model's config alone.

A multiplication and the addition after it are two FLOPs. We count the matrix products (projections, attention, MLP,
output head) and leave out norms, rotary embedding and softmax, as torch's own counter does. We count the bytes that
must be read from memory or written to it: each weight once, K and V of every position once, K and V of the new
positions once. We leave out activations, logits and the few embedding rows that are looked up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmlesson.engine.config import ModelConfig
from llmlesson.engine.model import matrix_sizes, vector_values
from llmlesson.engine.quantized import nbytes_of


@dataclass(frozen=True)
class Cost:
    """The cost of one forward pass of `batch` sequences, each with `tokens` new positions after `cached` old ones."""

    tokens: int
    cached: int
    batch: int
    projection_flops: int  # Q, K, V and output projections
    attention_flops: int  # q kᵀ and the weighted sum of v, for the pairs that the causal mask leaves
    mlp_flops: int
    head_flops: int  # logits of one position per sequence
    weight_bytes: int  # read
    kv_read_bytes: int
    kv_written_bytes: int

    @property
    def flops(self) -> int:
        """All FLOPs that the result needs, without the attention pairs that the mask hides."""
        return self.projection_flops + self.attention_flops + self.mlp_flops + self.head_flops

    @property
    def nbytes(self) -> int:
        """All bytes that must be moved."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_written_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, in FLOPs per byte: it decides whether memory or arithmetic is the limit."""
        return self.flops / self.nbytes


def prefill(
    config: ModelConfig,
    tokens: int,
    cached: int = 0,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    quantized: str | None = None,
) -> Cost:
    """Read `tokens` positions after `cached` others, with the logits of the last one. The same for each sequence.

    dtype: of weights and cache; `quantized` ("int8", "int4") of the matrices, as in `Model.quantized`.
    """
    c = config
    q_size, kv_size = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    rows, layers = batch * tokens, c.num_hidden_layers

    projections = c.hidden_size * (q_size + 2 * kv_size) + q_size * c.hidden_size  # values per layer
    mlp = 3 * c.hidden_size * c.intermediate_size  # gate, up, down
    head = c.hidden_size * c.vocab_size
    matrix_bytes = layers * sum(nbytes_of(*size, dtype, quantized) for size in matrix_sizes(c))
    matrix_bytes += nbytes_of(c.hidden_size, c.vocab_size, dtype, quantized, head=True)
    vector_bytes = (layers * vector_values(c) + c.hidden_size) * dtype.itemsize

    # The t-th new query sees the cached positions, itself and the new ones before it.
    pairs = tokens * cached + tokens * (tokens + 1) // 2
    flops_per_pair = 2 * 2 * q_size * layers * batch  # two products over all query heads
    kv_bytes_per_token = 2 * kv_size * layers * batch * dtype.itemsize
    return Cost(
        tokens=tokens,
        cached=cached,
        batch=batch,
        projection_flops=2 * rows * layers * projections,
        attention_flops=flops_per_pair * pairs,
        mlp_flops=2 * rows * layers * mlp,
        head_flops=2 * batch * head,
        weight_bytes=matrix_bytes + vector_bytes,
        kv_read_bytes=kv_bytes_per_token * (cached + tokens),
        kv_written_bytes=kv_bytes_per_token * tokens,
    )


def decode(
    config: ModelConfig,
    cached: int,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    quantized: str | None = None,
) -> Cost:
    """One decode step: one new position after `cached` others, for each sequence."""
    return prefill(config, 1, cached, batch, dtype, quantized)
