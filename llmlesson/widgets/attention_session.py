"""Attention of one prompt on the real model: every layer, head and token, from one recorded forward pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llmlesson.engine.product import product
from llmlesson.errors import LessonError
from llmlesson.views.attention import Look, Stream

if TYPE_CHECKING:
    from torch import Tensor

    from llmlesson.engine import Engine

LIMIT = 48  # tokens: each has a lane in the picture


class AttentionSession:
    """A prompt in the model's chat template (at most its first 48 tokens), read in one recorded pass. No widget.

    Hold the widgets' lock around the constructor, which runs the engine. Raises LessonError for a prompt that it can't
    read.
    """

    def __init__(self, engine: Engine, text: str) -> None:
        ids = engine.prompt_ids(text)
        self.engine, self.text, self.total = engine, text, len(ids)
        self.ids = ids[:LIMIT]
        self.texts = [engine.tokenizer.decode([token], special=True) for token in self.ids]
        with engine.record() as recording:
            engine.prefill(self.ids, engine.new_cache(len(self.ids)))
        self._layers = [recording[layer] for layer in range(engine.config.num_hidden_layers)]

    def others(self, token: int) -> list[list[float]]:
        """By layer and head: the share of this token's attention that goes neither to the first token nor to itself."""
        return [
            (record.weights[:, token, 1:token].sum(dim=-1) if token > 1 else record.weights[:, 0, 0] * 0).tolist()
            for record in self._layers
        ]

    def look(self, token: int, layer: int, head: int) -> Look:
        """What one head does for one token. Raises LessonError for a token, layer or head that isn't there."""
        c = self.engine.config
        for name, value, count in (
            ("token", token, len(self.ids)),
            ("layer", layer, c.num_hidden_layers),
            ("head", head, c.num_attention_heads),
        ):
            if not 0 <= value < count:
                raise LessonError(f"There is no {name} {value}: they run from 0 to {count - 1}.")
        record, kv_head = self._layers[layer], head // c.group_size
        keys, values = record.k[kv_head, : token + 1].float(), record.v[kv_head, : token + 1].float()  # [S, D]
        shares = record.weights[head, token, : token + 1]  # [S]
        taken = shares @ values  # [D], the sum that this head takes
        lengths = values.norm(dim=-1)  # [S]
        scores = keys @ record.q[head, token].float() / math.sqrt(c.head_dim)  # [S]
        cosines = values @ taken / (lengths * taken.norm()).clamp(min=1e-12)  # [S]
        return Look(
            self.texts,
            token,
            layer,
            head,
            kv_head,
            scores.tolist(),
            shares.tolist(),
            lengths.tolist(),
            cosines.tolist(),
            self._stream(layer, token),
        )

    def _stream(self, layer: int, token: int) -> Stream:
        record, group = self._layers[layer], self.engine.config.group_size
        before, after = record.before[token].float(), record.after[token].float()  # [H]
        values = record.v.float().repeat_interleave(group, dim=0)  # [Hq, S, D]
        taken = (record.weights[:, token, None] @ values)[:, 0].flatten()  # [Hq D], the heads side by side
        weights = self.engine.model.layers[layer].out
        added = product(taken.to(self.engine.device, self.engine.dtype)[None], weights)[0].float().cpu()  # [H]
        mlp = after - before - added
        return Stream(
            float(before.norm()),
            float(added.norm()),
            _degrees(added, before),
            float(mlp.norm()),
            _degrees(mlp, before),
            float(after.norm()),
            _degrees(after, before),
        )


def _degrees(a: Tensor, b: Tensor) -> float:
    """The angle between two vectors."""
    cosine = float(a @ b) / max(float(a.norm() * b.norm()), 1e-12)
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
