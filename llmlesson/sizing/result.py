"""A size layer by layer, and the arithmetic behind it with all numbers filled in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Literal

from llmlesson.sizing.conventions import get_convention
from llmlesson.sizing.dtypes import get_dtype, model_nbytes
from llmlesson.sizing.specs import Attention, Layer, ModelSpec, State
from llmlesson.sizing.units import both_units, gigabytes

KIND_NAMES = {
    "full": "full attention",
    "sliding": "sliding-window attention",
    "chunked": "chunked attention",
    "mla": "multi-head latent attention (MLA)",
    "shared": "attention on another layer's cache",
    "linear": "linear attention or Mamba",
    "conv": "short convolution",
    "hybrid": "attention and Mamba side by side",
    "cross": "cross-attention",
    "none": "no attention",
}


@dataclass(frozen=True)
class LayerSize:
    """One layer's bytes, for the whole batch on one rank. The per-token growth is for one sequence."""

    index: int
    kind: str
    key_nbytes: int
    value_nbytes: int
    state_nbytes: int
    cells: int  # token slots of one sequence, in the layer's own attention (0 where it has none)
    bytes_per_token: int  # growth while no window is full
    marginal_bytes_per_token: int  # growth once every window is full
    cross_nbytes: int = 0  # the part of keys and values that belongs to cross-attention

    @property
    def nbytes(self) -> int:
        return self.key_nbytes + self.value_nbytes + self.state_nbytes


@dataclass(frozen=True)
class KVCacheSize:
    """How large a cache is, and why. All sizes are exact integer bytes, of one tensor-parallel rank."""

    name: str
    tokens: int
    batch: int
    dtype: str
    convention: str
    tp: int
    per_layer: tuple[LayerSize, ...]
    spec: ModelSpec
    cross_tokens: int | None = None
    origin: Literal["formula", "measured"] = "formula"
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole batch: keys, values and states of every layer."""
        return sum(layer.nbytes for layer in self.per_layer)

    @property
    def bytes_per_token(self) -> int:
        """Bytes that each token of one sequence adds, while no window is full."""
        return sum(layer.bytes_per_token for layer in self.per_layer)

    @property
    def marginal_bytes_per_token(self) -> int:
        """Bytes that each token of one sequence adds, once every window is full."""
        return sum(layer.marginal_bytes_per_token for layer in self.per_layer)

    @property
    def fixed_nbytes(self) -> int:
        """Bytes that don't depend on the length of the context: states and cross-attention, for the whole batch."""
        return sum(layer.state_nbytes + layer.cross_nbytes for layer in self.per_layer)

    def explain(self) -> str:
        """The arithmetic with numbers: each value with its origin, each kind of layer, the total in GB and GiB."""
        return explain(self)


def explain(size: KVCacheSize) -> str:
    """Where each number of `size` comes from, as plain text."""
    lines = [_title(size), ""]
    if size.spec.values:
        lines += ["Values", *_values(size), ""]
    lines += ["Layers", *_layers(size), ""]
    lines += [f"Total  {size.nbytes:,} bytes = {gigabytes(size.nbytes)}"]
    lines += [f"Growth {size.bytes_per_token:,} bytes a token of one sequence ({both_units(size.bytes_per_token)})"]
    if size.marginal_bytes_per_token != size.bytes_per_token:
        lines += [f"       {size.marginal_bytes_per_token:,} bytes a token once every window is full"]
    if size.fixed_nbytes:
        lines += [f"Fixed  {size.fixed_nbytes:,} bytes whatever the context's length ({both_units(size.fixed_nbytes)})"]
    convention = get_convention(size.convention)
    lines += ["", f"Convention {convention.name}: {convention.rule}", f"Source: {convention.source}"]
    lines += [f"Note: {note}" for note in size.notes]
    return "\n".join(lines)


def _title(size: KVCacheSize) -> str:
    sequences = "1 sequence" if size.batch == 1 else f"{size.batch:,} sequences"
    rank = f", one of {size.tp} tensor-parallel ranks" if size.tp > 1 else ""
    cross = f", {size.cross_tokens:,} cross-attention tokens" if size.cross_tokens else ""
    how = "measured on transformers' own cache" if size.origin == "measured" else "by formula"
    return f"KV cache of {size.name}: {size.tokens:,} tokens × {sequences}, {size.dtype}{cross}{rank}, {how}"


def _values(size: KVCacheSize) -> Iterator[str]:
    width = max(len(value.name) for value in size.spec.values)
    for value in size.spec.values:
        text = str(value.value)
        if isinstance(value.value, list) and len(text) > 24:
            text = f"list of {len(value.value)}"
        origin = value.origin if not value.how else f"{value.origin}: {value.how}"
        yield f"  {value.name:<{width}}  {text:>10}  ({origin})"


def _layers(size: KVCacheSize) -> Iterator[str]:
    """Each kind of layer once: its formula with numbers, then how many there are."""
    groups: dict[Layer, list[LayerSize]] = {}
    layers = size.spec.layers if size.origin == "formula" else ()
    for layer, layer_size in zip(layers, size.per_layer, strict=False):
        groups.setdefault(layer, []).append(layer_size)
    for layer, sizes in groups.items():
        one = sizes[0]
        yield f"  {len(sizes)} × {KIND_NAMES.get(layer.kind, layer.kind)} (layers {_ranges([s.index for s in sizes])})"
        for part in layer.parts:
            yield from _attention(size, part) if isinstance(part, Attention) else _state(size, part)
        yield f"      {one.nbytes:,} bytes a layer × {len(sizes)} = {one.nbytes * len(sizes):,} bytes"
    if not layers:
        for kind, run in groupby(size.per_layer, key=lambda layer: (layer.kind, layer.nbytes)):
            indices = [layer.index for layer in run]
            yield f"  layers {_ranges(indices)}: {kind[0]}, {kind[1]:,} bytes each"


def _attention(size: KVCacheSize, part: Attention) -> Iterator[str]:
    convention, dtype = get_convention(size.convention), get_dtype(size.dtype)
    tokens = (size.cross_tokens or 0) if part.cross else size.tokens
    cells = convention.cells(part, tokens)
    heads = part.kv_heads if part.latent else max(1, part.kv_heads // size.tp)
    names = ("latent", "rope key") if part.latent else ("keys", "values")
    if part.latent and not part.value_dim:
        names = ("index keys", "")
    for name, dim in zip(names, (part.key_dim, part.value_dim), strict=True):
        if not dim:
            continue
        nbytes = size.batch * cells * dtype.nbytes(heads * dim)
        count = f"{dim} values" if part.latent else f"{heads} heads × {dim} values"
        batch = "" if size.batch == 1 else f" × {size.batch:,} sequences"
        yield f"      {name:<8} {count} × {cells:,} cells{batch} × {dtype.arithmetic} = {nbytes:,}"
    if part.cross:
        yield f"      cells = {cells:,}: {tokens:,} encoder or image tokens, whatever the context's length"
    elif part.window is not None:
        what = "chunk" if part.chunked else "window"
        yield f"      cells = {cells:,}: {tokens:,} tokens, {what} {part.window:,}, convention {size.convention}"
    elif cells != tokens:
        yield f"      cells = {cells:,}: {tokens:,} tokens, rounded up by convention {size.convention}"


def _state(size: KVCacheSize, part: State) -> Iterator[str]:
    convention = get_convention(size.convention)
    shape = [max(1, part.shape[0] // size.tp), *part.shape[1:]]
    if part.conv and convention.drop_conv_column:
        shape[-1] -= 1
    each = convention.state_value_nbytes(part, model_nbytes(size.spec, get_dtype(size.dtype)))
    total = size.batch * each
    for extent in shape:
        total *= extent
    batch = "" if size.batch == 1 else f" × {size.batch:,} sequences"
    yield f"      state    {part.name} {' × '.join(map(str, shape))} values{batch} × {each} bytes = {total:,}"


def _ranges(indices: list[int]) -> str:
    """[0, 1, 2, 5] -> "0–2, 5". A long list of ranges is cut."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:5], "…", texts[-1]])
