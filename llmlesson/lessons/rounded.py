"""The engine of a lesson in fewer bits, without loading it a second time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from llmlesson.engine import Engine


def in_bfloat16(engine: Engine) -> Engine:
    """The same model with every weight rounded to bfloat16; a new engine, which shares the tokenizer."""
    model = engine.model
    layers = [replace(layer, **_rounded(vars(layer))) for layer in model.layers]
    rounded = replace(
        model,
        embedding=model.embedding.to(torch.bfloat16),
        layers=layers,
        norm=model.norm.to(torch.bfloat16),
        head=model.head.to(torch.bfloat16) if isinstance(model.head, Tensor) else model.head,
    )
    return Engine(engine.name, rounded, engine.tokenizer, engine.eos_token_ids)


def _rounded(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: w.to(torch.bfloat16) for name, w in weights.items() if isinstance(w, Tensor)}
