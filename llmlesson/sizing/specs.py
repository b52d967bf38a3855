"""What one layer stores: keys and values, which grow with the context, and states, which don't."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Literal


@dataclass(frozen=True)
class Attention:
    """Keys and values of one attention: `[kv_heads, cells, key_dim]` and `[kv_heads, cells, value_dim]`.

    MHA, GQA and MQA differ in `kv_heads` only. MLA is one "head" whose key is the latent (`kv_lora_rank`) and whose
    value is the rope key: that is what is stored, so there is no factor 2.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None  # the most tokens it keeps; None: all of them
    chunked: bool = False  # the window is a chunk that starts anew instead of sliding
    latent: bool = False  # MLA and index keys: every tensor-parallel rank holds all of it
    cross: bool = False  # over the encoder's or the image's tokens: fixed once the request is read


@dataclass(frozen=True)
class State:
    """A state of fixed size. Tensor parallelism splits the first dimension."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["model", "fp32"] = "model"  # as transformers keeps it
    conv: bool = False  # the last dimension is the convolution's kernel

    @property
    def size(self) -> int:
        return prod(self.shape)


Part = Attention | State


@dataclass(frozen=True)
class Layer:
    """One layer of the model. `kind` names it for people: full, sliding, chunked, mla, shared, linear, hybrid, …"""

    kind: str
    parts: tuple[Part, ...] = ()

    @property
    def attentions(self) -> Iterator[Attention]:
        return (part for part in self.parts if isinstance(part, Attention))

    @property
    def states(self) -> Iterator[State]:
        return (part for part in self.parts if isinstance(part, State))


@dataclass(frozen=True)
class Value:
    """One number that the size depends on, and where it comes from."""

    name: str
    value: object
    origin: Literal["config", "class default", "derived"]
    how: str = ""


@dataclass(frozen=True)
class ModelSpec:
    """A model as sizing sees it: its layers in order, and the values they were built from."""

    name: str
    model_type: str
    layers: tuple[Layer, ...]
    values: tuple[Value, ...] = ()
    max_context: int | None = None
    model_dtype: str | None = None  # the config's own dtype, if it names one
    default_cross_tokens: int | None = None  # Whisper reads 1,500 frames, always
    notes: tuple[str, ...] = field(default=())
