"""The size of a KV cache: exact bytes, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.sizing.conventions import Convention, get_convention
from llmlesson.sizing.dtypes import Dtype, get_dtype, model_nbytes
from llmlesson.sizing.models import resolve
from llmlesson.sizing.result import KVCacheSize, LayerSize
from llmlesson.sizing.specs import Attention, Layer, ModelSpec, State
from llmlesson.sizing.units import MAX_BATCH, check_tokens


def kv_cache(
    config_or_name: Any,
    tokens: int,
    batch: int = 1,
    dtype: str = "bf16",
    convention: str = "ideal",
    *,
    tp: int = 1,
    cross_tokens: int | None = None,
) -> KVCacheSize:
    """The size of the KV cache of `batch` sequences of `tokens` tokens each.

    `config_or_name`: a table name, a folder or config.json, a hub id, a parsed config, or a list of `Layer`.
    `dtype`: how keys and values are stored (see `DTYPES`). States follow the convention; if they have the model's
    dtype, that is `dtype` if it is a float type of 16 or 32 bits, else the config's own (bf16 if it names none).
    `convention`: whose rounding (see `CONVENTIONS`; `get_convention(name).rule`).
    `tp`: tensor-parallel ranks; the result is one rank's bytes: max(1, kv_heads / tp) heads, and all of an MLA latent.
    `cross_tokens`: how many encoder or image tokens a model with cross-attention keeps.
    LessonError for anything without such a cache; nothing is guessed.
    """
    spec = resolve(config_or_name)
    return size_of_spec(spec, tokens, batch, dtype, convention, tp=tp, cross_tokens=cross_tokens)


def size_of_spec(
    spec: ModelSpec,
    tokens: int,
    batch: int = 1,
    dtype: str = "bf16",
    convention: str = "ideal",
    *,
    tp: int = 1,
    cross_tokens: int | None = None,
) -> KVCacheSize:
    """`kv_cache` for a model that is already resolved."""
    tokens = check_tokens(tokens)
    batch = check_tokens(batch, "batch", MAX_BATCH)
    tp = check_tokens(tp, "tp", 1024)
    kv_dtype, rule = get_dtype(dtype), get_convention(convention)
    if cross_tokens is None:
        cross_tokens = spec.default_cross_tokens
    if any(a.cross for layer in spec.layers for a in layer.attentions):
        if cross_tokens is None:
            raise LessonError(
                f"{spec.name} has cross-attention, whose cache depends on the encoder or image: give cross_tokens, the "
                "number of encoder or image tokens."
            )
        cross_tokens = check_tokens(cross_tokens, "cross_tokens")
    else:
        cross_tokens = None
    sizer = _Sizer(kv_dtype, rule, tokens, batch, tp, cross_tokens or 0, model_nbytes(spec, kv_dtype))
    known: dict[Layer, LayerSize] = {}  # most models repeat a few layers many times
    per_layer = []
    for index, layer in enumerate(spec.layers):
        if layer not in known:
            known[layer] = sizer.layer(layer)
        per_layer.append(replace(known[layer], index=index))
    return KVCacheSize(
        name=spec.name,
        tokens=tokens,
        batch=batch,
        dtype=kv_dtype.name,
        convention=rule.name,
        tp=tp,
        per_layer=tuple(per_layer),
        spec=spec,
        cross_tokens=cross_tokens,
        notes=(*spec.notes, *_notes(spec, tokens)),
    )


@dataclass(frozen=True)
class _Sizer:
    """The fixed settings of one calculation, applied to one layer at a time."""

    dtype: Dtype
    rule: Convention
    tokens: int
    batch: int
    tp: int
    cross_tokens: int
    model_nbytes: int

    def layer(self, layer: Layer) -> LayerSize:
        keys = values = states = cross = growth = marginal = cells = 0
        for part in layer.parts:
            if isinstance(part, State):
                states += self.state(part)
                continue
            key_row, value_row = self.rows(part)
            slots = self.rule.cells(part, self.cross_tokens if part.cross else self.tokens)
            keys += self.batch * slots * key_row
            values += self.batch * slots * value_row
            if part.cross:
                cross += self.batch * slots * (key_row + value_row)
            else:
                cells = max(cells, slots)
                growth += key_row + value_row
                marginal += key_row + value_row if part.window is None else 0
        return LayerSize(0, layer.kind, keys, values, states, cells, growth, marginal, cross)

    def rows(self, part: Attention) -> tuple[int, int]:
        """Bytes of one token's keys and of its values, on one rank."""
        heads = part.kv_heads if part.latent else self.share(part.kv_heads, "KV heads")
        return (
            self.dtype.nbytes(heads * part.key_dim, "a token's keys"),
            self.dtype.nbytes(heads * part.value_dim, "a token's values"),
        )

    def state(self, part: State) -> int:
        local = State(
            part.name, (self.share(part.shape[0], f"rows of {part.name!r}"), *part.shape[1:]), part.dtype, part.conv
        )
        return self.batch * self.rule.state_values(local) * self.rule.state_value_nbytes(part, self.model_nbytes)

    def share(self, count: int, what: str) -> int:
        """One rank's share: count / tp, or one (held by several ranks) if there are fewer than ranks."""
        if max(count, self.tp) % min(count, self.tp):
            raise LessonError(f"tp={self.tp} doesn't divide {count} {what}: choose a number of ranks that does.")
        return max(1, count // self.tp)


def _notes(spec: ModelSpec, tokens: int) -> Sequence[str]:
    if spec.max_context is not None and tokens > spec.max_context:
        return (f"{tokens:,} tokens are more than the model's context, {spec.max_context:,}.",)
    return ()
