"""Causal grouped-query attention. Keys and values may start at earlier positions than the queries."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Which keys each query may see: bool [T, S]. The queries are the last T of the S positions.

    Query t is at position S - T + t and sees all keys up to its own position, included. (SDPA's `is_causal` aligns
    queries and keys at the top left, which is right only if T == S.)
    """
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=keys - queries)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q kᵀ / √D) v, where each query head uses the key-value head of its group.

    q: [B, Hq, T, D], k and v: [B, Hkv, S, D], with Hq = Hkv · G; query head h reads key-value head h // G.
    mask: bool [B, 1, T, S], true where a query may see a key; None means causal, with the queries as the last T of the
    S positions. Returns [B, Hq, T, D]. K and V are never repeated in memory for the G heads that share them.
    """
    batch, heads, tokens, head_dim = q.shape
    kv_heads, length = k.shape[1], k.shape[2]
    q = q.view(batch, kv_heads, heads // kv_heads, tokens, head_dim)  # [B, Hkv, G, T, D]
    if tokens == 1:
        # With one query per head, the group takes the place of the queries: all its heads see the same keys.
        out = F.scaled_dot_product_attention(q.squeeze(3), k, v, mask)  # [B, Hkv, G, D]
    else:
        square = mask is None and tokens == length  # only then is SDPA's own causal mask aligned correctly
        if mask is None and not square:
            mask = causal_mask(tokens, length, q.device)
        per_member = [F.scaled_dot_product_attention(member, k, v, mask, is_causal=square) for member in q.unbind(2)]
        out = torch.stack(per_member, dim=2)  # [B, Hkv, G, T, D]
    return out.reshape(batch, heads, tokens, head_dim)


def attend_reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`attend` for one causal sequence, written to be read: one head and one position at a time.

    q: [Hq, T, D], k and v: [Hkv, S, D]. Returns [Hq, T, D].
    """
    heads, tokens, head_dim = q.shape
    kv_heads, length, _ = k.shape
    out = torch.empty_like(q)
    for head in range(heads):
        shared = head // (heads // kv_heads)  # the key-value head of this query head's group
        for t in range(tokens):
            visible = length - tokens + t + 1  # its own position and all before it
            scores = k[shared, :visible] @ q[head, t] / math.sqrt(head_dim)  # [visible]
            weights = scores.softmax(dim=0)
            out[head, t] = weights @ v[shared, :visible]  # [D]
    return out


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """The attention weights, which `attend` never holds in memory: float32 [Hq, T, S].

    q: [Hq, T, D], k: [Hkv, S, D], one causal sequence. Each row sums to one.
    """
    heads, tokens, head_dim = q.shape
    kv_heads, length, _ = k.shape
    grouped = q.float().view(kv_heads, heads // kv_heads, tokens, head_dim)
    scores = grouped @ k.float()[:, None].transpose(-1, -2) / math.sqrt(head_dim)  # [Hkv, G, T, S]
    scores = scores.masked_fill(~causal_mask(tokens, length, q.device), -math.inf)
    return scores.softmax(dim=-1).reshape(heads, tokens, length)
