"""The fixed states of linear-attention, Mamba and convolution layers.

Shapes are per sequence, as transformers 5.24 keeps them: a convolution state holds `kernel` columns (vLLM and llama.cpp
keep one fewer), recurrent states are fp32 whatever the model's dtype. Sources: `models/*/modeling_*.py` and the tests.
"""

from __future__ import annotations

from collections.abc import Callable

from llmlesson.errors import LessonError
from llmlesson.sizing.fields import MAX_COUNT, Fields
from llmlesson.sizing.specs import State


def mamba1(fields: Fields) -> tuple[State, ...]:
    """Mamba: conv `[inner, kernel]`, ssm `[inner, state]`, inner = expand · hidden_size."""
    inner = fields.derive("inner", _inner(fields), "expand · hidden_size")
    return (
        State("conv", (inner, fields.count("conv_kernel")), conv=True),
        State("ssm", (inner, fields.count("state_size")), dtype="fp32"),
    )


def mamba2(fields: Fields) -> tuple[State, ...]:
    """Mamba-2: conv over x and over B and C of each group, ssm `[heads, head_dim, state]`."""
    heads, state, kernel = fields.count("mamba_heads"), fields.count("state_size"), fields.count("conv_kernel")
    head_dim = fields.get("mamba_head_dim")
    if head_dim in (None, "auto"):
        head_dim = fields.derive("mamba_head_dim", _inner(fields) // heads, "inner / mamba_heads")
    head_dim = fields.whole("mamba_head_dim", head_dim)
    return (
        State("conv x", (heads * head_dim, kernel), conv=True),
        State("conv B, C", (fields.count("n_groups"), 2 * state, kernel), conv=True),
        State("ssm", (heads, head_dim, state), dtype="fp32"),
    )


def gated_delta(fields: Fields) -> tuple[State, ...]:
    """Gated DeltaNet (Qwen3-Next): conv over q, k and v, and one `[key_dim, value_dim]` matrix per value head."""
    key_heads, key_dim = fields.count("linear_num_key_heads"), fields.count("linear_key_head_dim")
    value_heads, value_dim = fields.count("linear_num_value_heads"), fields.count("linear_value_head_dim")
    kernel = fields.count("linear_conv_kernel_dim")
    return (
        State("conv q, k", (2 * key_heads * key_dim, kernel), conv=True),
        State("conv v", (value_heads * value_dim, kernel), conv=True),
        State("recurrent", (value_heads, key_dim, value_dim), dtype="fp32"),
    )


def kimi_delta(fields: Fields) -> tuple[State, ...]:
    """Kimi Delta Attention: conv over q, k and v, and one square matrix per head."""
    heads, dim = fields.count("linear_num_heads"), fields.count("linear_head_dim")
    return (
        State("conv q, k, v", (3 * heads * dim, fields.count("linear_conv_kernel_dim")), conv=True),
        State("recurrent", (heads, dim, dim), dtype="fp32"),
    )


def short_conv(fields: Fields) -> tuple[State, ...]:
    """LFM2: the last `conv_L_cache` inputs of a gated short convolution."""
    return (State("conv", (fields.count("hidden_size"), fields.count("conv_L_cache")), conv=True),)


def layer_states(fields: Fields) -> tuple[State, ...]:
    """The states of one linear layer of this family. LessonError if the family has none."""
    rule = fields.rules.get("state")
    if rule is None:
        raise LessonError(
            f"{fields.where}: 'layer_types' lists linear or conv layers, but sizing knows no state for model_type "
            f"{fields.model_type!r}."
        )
    return _RULES[rule](fields)


def _inner(fields: Fields) -> int:
    """Width of a Mamba layer: its own key if the family has one (`mamba_d_ssm`), else expand · hidden_size."""
    own = fields.optional_count("mamba_inner")
    if own is not None:
        return own
    expand = fields.get("expand")  # not always whole: 1.5 · 2,048
    if isinstance(expand, bool) or not isinstance(expand, int | float) or not 0 < expand < MAX_COUNT:
        raise LessonError(f"{fields.where}: 'expand' must be a number above 0, but it is {expand!r:.60}.")
    return fields.whole("expand · hidden_size", int(expand * fields.count("hidden_size")))


_RULES: dict[str, Callable[[Fields], tuple[State, ...]]] = {
    "mamba1": mamba1,
    "mamba2": mamba2,
    "gated_delta": gated_delta,
    "kimi_delta": kimi_delta,
    "short_conv": short_conv,
}
