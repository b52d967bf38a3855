"""Does a model fit, for how many users, and how fast can it go? From weights, cache and memory bandwidth."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import ceil
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.sizing.capacity import max_sequences, max_tokens
from llmlesson.sizing.dtypes import get_dtype
from llmlesson.sizing.models import resolve
from llmlesson.sizing.size import size_of_spec
from llmlesson.sizing.units import MAX_TOKENS, both_units, check_tokens
from llmlesson.sizing.weights import model_weights

# Kept free for activations, the CUDA context and workspaces, as with vLLM's gpu_memory_utilization=0.9.
RESERVE_PERCENT = 10


@dataclass(frozen=True)
class Gpu:
    """A card. `memory_nbytes` is what its driver reports; the other two are the vendor's peaks.

    bandwidth: bytes a second. flops: a second, dense products of 16-bit floats.
    """

    name: str
    memory_nbytes: int
    bandwidth: int
    flops: float
    source: str

    @property
    def critical_batch(self) -> float:
        """FLOPs that it computes while it reads a byte.

        So many tokens a step needs before arithmetic is its limit, with weights of 16 bits (2 bytes read, 2 FLOPs for
        each token) and nothing else to read.
        """
        return self.flops / self.bandwidth


@cache
def gpu_table() -> dict[str, Gpu]:
    """The cards that planning knows, smallest first."""
    text = files("llmlesson.sizing").joinpath("data/gpus.json").read_text("utf-8")
    return {
        name: Gpu(
            name, row["memory_mib"] * 2**20, row["bandwidth_gb_s"] * 10**9, row["tflops_16_bit"] * 1e12, row["source"]
        )
        for name, row in json.loads(text)["gpus"].items()
    }


def get_gpu(name: str) -> Gpu:
    """The card called `name`, in any case. LessonError with the nearest names for another."""
    by_name = {known.lower(): gpu for known, gpu in gpu_table().items()}
    gpu = by_name.get(str(name).lower())
    if gpu is None:
        close = difflib.get_close_matches(str(name).lower(), by_name, 2, 0.5)
        hint = f"Did you mean {' or '.join(by_name[c].name for c in close)}?" if close else ""
        raise LessonError(f"{name!r} is not in the GPU table. {hint or 'It has ' + ', '.join(gpu_table()) + '.'}")
    return gpu


@dataclass(frozen=True)
class Plan:
    """What one model leaves room for. Bytes and the cache are those of one tensor-parallel rank (one card)."""

    name: str
    gpu: Gpu
    tp: int
    weights_dtype: str
    kv_dtype: str
    context: int
    weights_nbytes: int
    reserve_nbytes: int
    kv_budget_nbytes: int  # negative: the weights alone don't fit
    kv_nbytes_per_user: int
    max_context: int  # tokens for one user; MAX_TOKENS: no limit from memory; 0: doesn't fit
    users: int  # sequences of `context` tokens at once
    read_nbytes: int  # weights that a decode step reads
    notes: tuple[str, ...] = field(default=())

    @property
    def fits(self) -> bool:
        """Whether one user at `context` fits."""
        return self.users >= 1

    def steps_per_second(self, users: int = 1) -> float:
        """The ceiling on decode steps a second for `users` at `context`: bandwidth / (weights read + their caches)."""
        return self.gpu.bandwidth / (self.read_nbytes + users * self.kv_nbytes_per_user)

    def explain(self) -> str:
        """The plan as plain text, with its arithmetic."""
        card = f"{self.tp} × {self.gpu.name}" if self.tp > 1 else self.gpu.name
        each = " (each card)" if self.tp > 1 else ""
        lines = [
            f"{self.name} on {card}: weights {self.weights_dtype}, cache {self.kv_dtype}, context {self.context:,}",
            f"  memory      {both_units(self.gpu.memory_nbytes)}{each}",
            f"  − reserve   {both_units(self.reserve_nbytes)} ({RESERVE_PERCENT} %: activations, workspace)",
            f"  − weights   {both_units(self.weights_nbytes)}",
            f"  = for cache {both_units(self.kv_budget_nbytes)}",
            f"  one user    {both_units(self.kv_nbytes_per_user)} at {self.context:,} tokens",
        ]
        if self.fits:
            longest = "any number of" if self.max_context >= MAX_TOKENS else f"{self.max_context:,}"
            alone, all_users = self.steps_per_second(), self.steps_per_second(self.users)
            lines += [
                f"  users       {self.users:,} at once with {self.context:,} tokens each",
                f"  longest     {longest} tokens, for one user",
                f"  decode      at most {alone:,.0f} tokens/s for one user; with {self.users:,} users {all_users:,.0f} "
                f"each, {all_users * self.users:,.0f} in all (bandwidth / bytes of weights and cache read a step)",
            ]
        else:
            lines += ["  It does not fit."]
        return "\n".join(lines + [f"Note: {note}" for note in self.notes])


def fit(
    config_or_name: Any,
    gpu: str,
    weights_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    context: int = 8192,
    tp: int = 1,
) -> Plan:
    """Weights + cache + reserve on `tp` cards of one kind: the longest context, the users, the decode ceiling.

    The cache is sized by the `ideal` convention. Weight bytes come from the parameter count (`model_weights`): recorded
    for the model table, counted on the meta device for other models (imports torch). LessonError as `kv_cache`, and for
    models with cross-attention, whose encoder works only once.
    """
    card = get_gpu(gpu)
    spec = resolve(config_or_name)
    context = check_tokens(context, "context")
    if any(attention.cross for layer in spec.layers for attention in layer.attentions):
        raise LessonError(f"{spec.name} has an encoder or image tower, and plans are made for decoder-only models.")
    one_user = size_of_spec(spec, context, 1, kv_dtype, tp=tp)
    weights, stored = model_weights(config_or_name), get_dtype(weights_dtype)
    per_rank = [
        ceil(count * stored.block_bytes / stored.block / tp) for count in (weights.total, weights.read_per_token)
    ]
    reserve = card.memory_nbytes * RESERVE_PERCENT // 100
    budget = card.memory_nbytes - reserve - per_rank[0]
    users = max_sequences(spec, context, budget, kv_dtype, tp=tp) if budget >= 0 else 0
    longest = max_tokens(spec, budget, 1, kv_dtype, tp=tp) if budget >= 0 else 0
    return Plan(
        name=spec.name,
        gpu=card,
        tp=tp,
        weights_dtype=stored.name,
        kv_dtype=one_user.dtype,
        context=context,
        weights_nbytes=per_rank[0],
        reserve_nbytes=reserve,
        kv_budget_nbytes=budget,
        kv_nbytes_per_user=one_user.nbytes,
        max_context=longest,
        users=users,
        read_nbytes=per_rank[1],
        notes=(*one_user.notes, *_notes(spec.max_context, longest, budget, per_rank[0], tp, weights.experts_count)),
    )


def _notes(
    made_for: int | None, longest: int, budget: int, weights_nbytes: int, tp: int, experts_count: int
) -> list[str]:
    notes = []
    if made_for is not None and longest > made_for:
        notes.append(f"Memory has room for more, but the model is made for {made_for:,} tokens.")
    if budget < 0:
        ranks = ceil(weights_nbytes * tp / (budget + weights_nbytes))
        notes.append(f"The weights alone need at least {ranks} of these cards. Try tp={1 << (ranks - 1).bit_length()}.")
    if experts_count > 1:
        notes.append(
            "This is a mixture of experts: the ceiling counts the experts that one token goes through. The tokens of "
            "several users go through more experts, so the ceiling for many users is too high."
        )
    return notes
