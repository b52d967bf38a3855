"""The counted work of a whole answer, with the KV cache and without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llmlesson.engine.config import ModelConfig
from llmlesson.errors import LessonError
from llmlesson.measure.cost import Cost, decode, prefill


@dataclass(frozen=True)
class AnswerCost:
    """Sums over the forward passes of one answer."""

    passes: int
    positions: int  # positions that went through the layers
    kv_projections: int  # K and V vectors computed: two for each position, KV head and layer
    attention_reads: int  # query-key pairs in all query heads of all layers; each reads one K and one V vector
    attention_flops: int
    other_flops: int  # projections, MLP, logits

    @property
    def flops(self) -> int:
        return self.attention_flops + self.other_flops


def with_cache(config: ModelConfig, prompt: int, new_tokens: int) -> AnswerCost:
    """Prefill of `prompt` tokens, then a decode step for each token after the first. The last token is never read.

    Raises LessonError unless both are at least 1.
    """
    _check(prompt, new_tokens)
    steps = (decode(config, cached=prompt + i) for i in range(new_tokens - 1))
    return _sum(config, (prefill(config, prompt), *steps))


def without_cache(config: ModelConfig, prompt: int, new_tokens: int) -> AnswerCost:
    """Each token of the answer comes from reading everything before it, with logits for the last position only.

    Raises LessonError unless both are at least 1.
    """
    _check(prompt, new_tokens)
    return _sum(config, (prefill(config, prompt + i) for i in range(new_tokens)))


def decode_break_even(config: ModelConfig) -> tuple[int, int]:
    """The context at which attention becomes half of a decode step: by FLOPs, and by bytes read in float32."""
    empty, one = decode(config, cached=0), decode(config, cached=1)
    flops_per_token = one.attention_flops - empty.attention_flops
    bytes_per_token = one.kv_read_bytes - empty.kv_read_bytes
    others = empty.flops - empty.attention_flops
    # A step reads the cached positions and its own one.
    return -(-others // flops_per_token) - 1, -(-empty.weight_bytes // bytes_per_token) - 1


def _sum(config: ModelConfig, passes: Iterable[Cost]) -> AnswerCost:
    costs = list(passes)
    positions, attention = sum(c.tokens for c in costs), sum(c.attention_flops for c in costs)
    return AnswerCost(
        passes=len(costs),
        positions=positions,
        kv_projections=2 * positions * config.num_key_value_heads * config.num_hidden_layers,
        attention_reads=attention // (2 * 2 * config.head_dim),  # two products over head_dim
        attention_flops=attention,
        other_flops=sum(c.flops for c in costs) - attention,
    )


def _check(prompt: int, new_tokens: int) -> None:
    if prompt < 1 or new_tokens < 1:
        raise LessonError(f"The prompt has {prompt} tokens and the answer {new_tokens}: both must have at least 1.")
