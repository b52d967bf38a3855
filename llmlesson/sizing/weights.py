"""How many parameters a model has, and how many of them one decode step reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from llmlesson.sizing.models import load_config, table_name


@dataclass(frozen=True)
class Weights:
    """Counts of parameters. `total` is the language model's, without a vision or audio tower."""

    total: int
    lookup: int  # embedding tables that a step only looks up rows in (a tied one is the output head, which it reads)
    experts: int  # parameters of routed experts
    experts_used: int  # experts that one token goes through, out of
    experts_count: int  # this many; 1 and 1 for a dense model

    @property
    def read_per_token(self) -> int:
        """Parameters that a decode step of one token must read: no lookup tables, and only the experts it uses."""
        return self.total - self.lookup - self.experts + self.experts * self.experts_used // self.experts_count


def model_weights(config_or_name: Any) -> Weights:
    """The parameter counts of a model: recorded for the table's models (a test checks them), else counted now."""
    if isinstance(config_or_name, str):
        entry = table_name(config_or_name)
        if entry is not None:
            return Weights(*_recorded()[entry])
    return count_weights(config_or_name)


def count_weights(config_or_name: Any) -> Weights:
    """Count on the meta device, where a model needs no memory (imports torch and transformers)."""
    from torch import nn

    from llmlesson.sizing.meta_device import meta_model

    config, name = load_config(config_or_name)
    model = meta_model(config, name)
    total = sum(p.numel() for p in model.parameters())
    head = model.get_output_embeddings()
    tables = {id(m.weight): m.weight for m in model.modules() if isinstance(m, nn.Embedding)}  # one may have two names
    lookup = sum(table.numel() for table in tables.values() if head is None or table is not head.weight)
    if head is None:  # the class has no output head of its own: count one, tied or not
        inputs = model.get_input_embeddings().weight.numel()
        tied = config.get("tie_word_embeddings", getattr(model.config, "tie_word_embeddings", False))
        total, lookup = (total, lookup - inputs) if tied else (total + inputs, lookup)
    experts = sum(p.numel() for key, p in model.named_parameters() if ".experts." in key)
    used, count = _experts(model.config) if experts else (1, 1)
    return Weights(total, lookup, experts, used, count)


def _experts(config: Any) -> tuple[int, int]:
    """(experts a token goes through, experts a layer has)."""
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    count = next(int(getattr(config, name)) for name in names if getattr(config, name, None))
    used = next(
        int(getattr(config, name)) for name in ("num_experts_per_tok", "moe_k", "moe_topk") if hasattr(config, name)
    )
    return used, count


@cache
def _recorded() -> dict[str, list[int]]:
    text = files("llmlesson.sizing").joinpath("data/parameters.json").read_text("utf-8")
    table: dict[str, list[int]] = json.loads(text)["models"]
    return table
