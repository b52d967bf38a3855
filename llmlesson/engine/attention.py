"""Grouped-query attention, causal, on keys and values that may reach further back than the queries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Who may look at whom: [T, S] of bool. The queries are the last T of the S positions.

    Query t stands at position S - T + t and sees the keys up to there, itself included. (SDPA's `is_causal` would
    align the two at the top left, which is right only for T == S.)
    """
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=keys - queries)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q kᵀ / √D + causal mask) v, every query head with the key-value head of its group.

    q: [B, Hq, T, D], k and v: [B, Hkv, S, D], with Hq = Hkv · G; query head h reads key-value head h // G.
    Returns [B, Hq, T, D]. K and V are never repeated in memory for the G query heads that share them.
    """
    batch, heads, tokens, head_dim = q.shape
    kv_heads, length = k.shape[1], k.shape[2]
    q = q.view(batch, kv_heads, heads // kv_heads, tokens, head_dim)  # [B, Hkv, G, T, D]
    if tokens == 1:
        # A single query sees everything: no mask, and the group can stand where the queries do.
        out = F.scaled_dot_product_attention(q.squeeze(3), k, v)  # [B, Hkv, G, D]
    else:
        square = tokens == length  # let SDPA make its own mask where its alignment is right
        mask = None if square else causal_mask(tokens, length, q.device)
        per_member = [F.scaled_dot_product_attention(member, k, v, mask, is_causal=square) for member in q.unbind(2)]
        out = torch.stack(per_member, dim=2)  # [B, Hkv, G, T, D]
    return out.reshape(batch, heads, tokens, head_dim)
