"""Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864): a position becomes a rotation of Q and K."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from llmlesson.engine.config import ModelConfig


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """How far each pair of values turns per position, in radians: theta^(-2i / head_dim). Float32 [D/2].

    With Llama 3 scaling, slow pairs turn `factor` times slower, fast ones as before, and those between are
    blended, so that positions beyond the original context stay within angles that the model has seen
    (transformers, `modeling_rope_utils._compute_llama3_parameters`).
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents  # [D/2]
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)  # over the original context
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = blend.clamp(0, 1)  # 0: slow, fully scaled; 1: fast, unscaled
    return (1 - blend) * frequencies / scaling.factor + blend * frequencies


def rotation(frequencies: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of each position's angles: [B, T] → two float32 [B, 1, T, D/2], the same for all heads.

    Angles stay in float32 whatever the model's dtype: bfloat16 has 8 bits of precision, so that from position 256
    on neighbouring positions would become equal.
    """
    angles = positions.to(torch.float32)[:, None, :, None] * frequencies  # [B, 1, T, D/2]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x[i], x[i + D/2]) of every head: [B, heads, T, D] → the same shape and dtype."""
    first, second = x.float().chunk(2, dim=-1)  # [B, heads, T, D/2] each
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
