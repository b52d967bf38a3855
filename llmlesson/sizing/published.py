"""Cache sizes that others published, reproduced: the right ones, and the wrong ones with the mistake behind them."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from llmlesson.sizing.models import model_table, resolve
from llmlesson.sizing.result import KVCacheSize
from llmlesson.sizing.size import size_of_spec
from llmlesson.sizing.specs import Attention, Layer, ModelSpec

# What the papers and logs call the dtypes.
_DTYPES = {"16bit": "bf16", "f16": "fp16", "f32": "fp32"}


@dataclass(frozen=True)
class Claim:
    """One published size. `agrees` says whether the number is right, and `mistake` what went wrong if it isn't."""

    model: str
    tokens: int
    dtype: str
    claimed_text: str
    claimed_nbytes: int
    tolerance_nbytes: int  # how far the claim's own rounding can be off
    agrees: bool
    kind: str
    source: str
    notes: str
    mistake: str
    config: str
    overrides: dict[str, Any]  # the mistake, as a change to the config
    convention: str
    part: str
    tp: int

    def right_nbytes(self) -> int:
        """The size by our formula."""
        return self.nbytes_with({})

    def nbytes_with(self, overrides: dict[str, Any]) -> int:
        """The same with some of the config's values replaced."""
        spec = _spec(self.config, overrides)
        size = size_of_spec(spec, self.tokens, 1, self.dtype, self.convention, tp=self.tp)
        return _PARTS[self.part](size)

    def matches(self, nbytes: int) -> bool:
        """Whether `nbytes` is the claimed size, within the claim's rounding."""
        return abs(nbytes - self.claimed_nbytes) <= self.tolerance_nbytes


_PARTS = {
    "total": lambda size: size.nbytes,
    "growth": lambda size: size.bytes_per_token,
    "keys": lambda size: sum(layer.key_nbytes for layer in size.per_layer),
    "keys and values": lambda size: sum(layer.key_nbytes + layer.value_nbytes for layer in size.per_layer),
    "full layers": lambda size: _of_kind(size, "full"),
    "sliding layers": lambda size: _of_kind(size, "sliding"),
}


def _of_kind(size: KVCacheSize, kind: str) -> int:
    return sum(layer.nbytes for layer in size.per_layer if layer.kind == kind)


@cache
def published_claims() -> tuple[Claim, ...]:
    """All published sizes that the package carries, with their sources."""
    text = files("llmlesson.sizing").joinpath("data/published_kv_sizes.csv").read_text("utf-8")
    return tuple(
        Claim(
            model=row["model"],
            tokens=int(row["context"]),
            dtype=_DTYPES.get(row["kv_dtype"], row["kv_dtype"]),
            claimed_text=row["claimed_text"],
            claimed_nbytes=int(row["claimed_bytes"]),
            tolerance_nbytes=int(row["tolerance_bytes"]),
            agrees=row["agrees"] == "True",
            kind=row["kind"],
            source=row["source"],
            notes=row["notes"],
            mistake=row["mistake"],
            config=row["config"],
            overrides=json.loads(row["overrides"] or "{}"),
            convention=row["convention"],
            part=row["part"],
            tp=int(row["tp"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _spec(name: str, overrides: dict[str, Any]) -> ModelSpec:
    if name in model_table():
        return resolve({**model_table()[name]["config"], **overrides})
    entry = _other_configs()[name]
    if "config" in entry:
        return resolve({**entry["config"], **overrides})
    layers = entry["layers"]
    attention = Attention(layers["kv_heads"], layers["key_dim"], layers["value_dim"])
    return resolve([Layer("full", (attention,))] * layers["count"])


@cache
def _other_configs() -> dict[str, dict[str, Any]]:
    text = files("llmlesson.sizing").joinpath("data/published_configs.json").read_text("utf-8")
    models: dict[str, dict[str, Any]] = json.loads(text)["models"]
    return models
