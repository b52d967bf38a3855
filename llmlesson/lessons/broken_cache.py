"""A toy engine with real weights, and eight ways to break its KV cache.

The forward pass of the default model written out for one sequence, so that you can read it from top to bottom. Each
bug changes one line, and people have really shipped each of them.

Shapes: T new positions, S positions in the cache after them, H hidden_size, D head_dim, Hq query and Hkv key-value
heads.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from llmlesson.engine import Engine
from llmlesson.engine.model import Layer
from llmlesson.errors import LessonError

WINDOW = 48  # positions that the cache with the bug "window" keeps

BUGS = {
    "restart": "After the prompt, positions start at 0 again.",
    "late": "After the prompt, every position is one too high.",
    "own-token": "After the prompt, a new token does not see its own key.",
    "top-left": "The causal mask of several new tokens starts at the first key, not at their own.",
    "unrotated": "K is stored before it is rotated to its position.",
    "again": "Each step reads the whole sequence again, on top of the cache.",
    "window": f"Only the last {WINDOW} positions are kept.",
    "swapped": "K and V of one head change places, in one layer.",
}
# The line that each bug puts in place of the right one. `ToyEngine.read` has the same lines, each behind its switch.
LINES = {
    "restart": "positions = torch.arange(len(ids), device=self.device)",
    "late": "positions = positions + 1",
    "own-token": "visible = everyone.tril(length - len(ids) - 1)",
    "top-left": "visible = everyone.tril()",
    "unrotated": "stored = torch.cat((self.keys[index], k), dim=1)",
    "again": "ids = self.ids",
    "window": "self.keys[index], self.values[index] = stored[:, -WINDOW:], values[:, -WINDOW:]",
    "swapped": "k[0], v[0] = v[0].clone(), k[0].clone()",
}


class ToyEngine:
    """One sequence, its cache, and one of BUGS or none. Raises LessonError for another bug, or a model it can't run."""

    def __init__(self, engine: Engine, bug: str | None = None) -> None:
        if bug is not None and bug not in BUGS:
            raise LessonError(f"There is no bug {bug!r}. The bugs are: {', '.join(BUGS)}.")
        c = engine.config
        if c.qkv_bias or c.qk_norm or not all(c.rope_layers):
            raise LessonError(f"The toy engine runs models of the plain Llama kind such as smollm2-135m, not {engine}.")
        self.model, self.config, self.device, self.bug = engine.model, c, engine.device, bug
        empty = self.model.norm.new_empty(c.num_key_value_heads, 0, c.head_dim)
        self.keys, self.values = [empty] * c.num_hidden_layers, [empty] * c.num_hidden_layers  # [Hkv, S, D] by layer
        self.ids: list[int] = []  # all that was read
        self.position = 0  # of the next token

    @torch.no_grad()
    def read(self, ids: list[int]) -> Tensor:
        """Read the next tokens, a prompt or one token. Returns the logits after the last of them, [V]."""
        self.ids = self.ids + ids
        if self.bug == "again":
            ids = self.ids
        first, length = self.position == 0, self.keys[0].shape[1] + len(ids)
        self.position += len(ids)

        positions = torch.arange(self.position - len(ids), self.position, device=self.device)  # [T]
        if self.bug == "restart":
            positions = torch.arange(len(ids), device=self.device)
        if self.bug == "late" and not first:
            positions = positions + 1

        everyone = torch.ones(len(ids), length, dtype=torch.bool, device=self.device)
        visible = everyone.tril(length - len(ids))  # [T, S]: keys up to the token's own
        if self.bug == "own-token" and not first:
            visible = everyone.tril(length - len(ids) - 1)
        if self.bug == "top-left" and len(ids) > 1:
            visible = everyone.tril()

        x = self.model.embedding[ids]  # [T, H]
        for index, layer in enumerate(self.model.layers):
            q, k, v = self._project(layer, self._norm(x, layer.attention_norm))  # [heads, T, D] each
            if self.bug == "swapped" and index == 0:
                k[0], v[0] = v[0].clone(), k[0].clone()
            q, rotated = self._rotate(q, positions), self._rotate(k, positions)

            keys = torch.cat((self.keys[index], rotated), dim=1)  # [Hkv, S, D]
            values = torch.cat((self.values[index], v), dim=1)
            stored = keys
            if self.bug == "unrotated":
                stored = torch.cat((self.keys[index], k), dim=1)
            self.keys[index], self.values[index] = stored, values
            if self.bug == "window":
                self.keys[index], self.values[index] = stored[:, -WINDOW:], values[:, -WINDOW:]

            x = x + self._attend(q, keys, values, visible) @ layer.out
            gate, up = (self._norm(x, layer.mlp_norm) @ layer.gate_up).chunk(2, dim=-1)
            x = x + (F.silu(gate) * up) @ layer.down
        return self._norm(x[-1], self.model.norm) @ self.model.head

    def _project(self, layer: Layer, x: Tensor) -> tuple[Tensor, ...]:
        heads = [self.config.num_attention_heads, self.config.num_key_value_heads, self.config.num_key_value_heads]
        return (x @ layer.qkv).unflatten(-1, (sum(heads), -1)).transpose(0, 1).split(heads)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, None] * self.model.frequencies  # [T, D/2]
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()), dim=-1
        )

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
        group = len(q) // len(keys)  # query heads that share one key-value head
        keys, values = keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)  # [Hq, S, D]
        scores = q @ keys.transpose(1, 2) / math.sqrt(self.config.head_dim)  # [Hq, T, S]
        weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
        return (weights @ values).transpose(0, 1).flatten(1)  # [T, Hq D]

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps) * weight
