"""One pass over a prompt on several machines: what was measured here, and what the limits of others allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import torch

from llmlesson.measure import cost
from llmlesson.measure.data_sheets import DataSheet
from llmlesson.measure.roofline import Placement, Roofline
from llmlesson.views.plot import COMPUTED_DASH, NEUTRAL, Pictured, colour, new_figure
from llmlesson.views.roofline_picture import Mark, Roof, roofline_picture

TOKENS = (1, 8, 64, 512, 4096)
HERE = "this machine"


def roofs_of(cards: Sequence[DataSheet]) -> list[Roof]:
    return [Roof(card.name, card.bytes_per_second, card.flops_per_second, measured=False) for card in cards]


def marks_of(roof: Roof, config: Any, dtype: torch.dtype = torch.bfloat16) -> list[Mark]:
    """Prompts of `TOKENS` at the limit. config: a ModelConfig."""
    works = [cost.prefill(config, tokens, dtype=dtype) for tokens in TOKENS]
    return [
        Mark(named(tokens), work.intensity, roof.at(work.intensity), measured=False)
        for tokens, work in zip(TOKENS, works, strict=True)
    ]


def named(tokens: int) -> str:
    return f"{tokens:,} token{'s' * (tokens > 1)}"


def machines_picture(cards: Sequence[DataSheet], config: Any) -> str:
    """The still: roofs of cards, and one model's prompts at the limit of the last of them. HTML."""
    roofs = roofs_of(cards)
    return roofline_picture(roofs, marks_of(roofs[-1], config))


def machines_figure(
    limits: Roofline,
    points: Mapping[str, Placement],
    card: DataSheet | None,
    model: str,
    config: Any,
) -> Pictured:
    """What a card's limits allow one model, hollow, beside what was measured here, filled.

    limits, points: what was measured here. card: None for this machine. model, config: its name and ModelConfig. A card
    computes with numbers of 16 bits, this machine with those of `limits.dtype`.
    """
    here = Roof(HERE, limits.bytes_per_second, limits.flops_per_second, measured=True)
    roofs = [here] if card is None else [here, *roofs_of([card])]
    roof, dtype = roofs[-1], getattr(torch, limits.dtype) if card is None else torch.bfloat16
    marks = marks_of(roof, config, dtype)
    figure = new_figure("Reading a prompt, here and elsewhere", "FLOPs per byte moved", "GFLOP/s")
    across = [one.ridge for one in roofs] + [mark.intensity for mark in marks]
    left, right = min(across) / 6, max(across) * 8
    for one in roofs:
        figure.add_scatter(
            x=[left, one.ridge, right],
            y=[one.at(value) / 1e9 for value in (left, one.ridge, right)],
            mode="lines",
            line=dict(color=NEUTRAL, width=2, dash="solid" if one.measured else COMPUTED_DASH),
            name=one.name,
            hoverinfo="skip",
        )
        figure.add_annotation(
            text=f"{one.name}, {'measured' if one.measured else 'computed'}",
            x=log10(right) - 0.05,  # on the edge, plotly may take it for outside and drop it
            y=log10(one.flops_per_second / 1e9),
            xanchor="right",
            yanchor="top",
            xshift=0,
            yshift=-3,
        )
    figure.add_scatter(
        x=[mark.intensity for mark in marks],
        y=[mark.flops_per_second / 1e9 for mark in marks],
        text=[mark.name for mark in marks],
        hovertext=_in_words(roof, card, model, config, marks, dtype),
        mode="markers+text",
        marker=dict(color=colour("prompt"), symbol="circle-open", size=11, line_width=2),
        textposition="top left",
        name=f"computed for {roof.name}",
        hovertemplate="%{hovertext}<extra></extra>",
    )
    figure.add_scatter(
        x=[point.cost.intensity for point in points.values()],
        y=[point.flops_per_second / 1e9 for point in points.values()],
        mode="markers",
        marker=dict(color=colour("prompt"), size=11),
        name="measured",
        text=list(points),
        hovertemplate="measured here: %{text}<br>%{x:.3g} FLOPs per byte, %{y:.3g} GFLOP/s<extra></extra>",
    )
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_layout(margin_r=24)
    measured = [Mark(n, p.cost.intensity, p.flops_per_second, measured=True) for n, p in points.items()]
    text = f"{model} on {roof.name}. Roofline of {limits.device}{f' and of {card.name}' if card else ''}."
    return Pictured(figure, roofline_picture(roofs, [*measured, *marks]), text)


def _in_words(
    roof: Roof, card: DataSheet | None, model: str, config: Any, marks: Sequence[Mark], dtype: torch.dtype
) -> list[str]:
    """What pointing at each mark says."""
    works = [cost.prefill(config, tokens, dtype=dtype) for tokens in TOKENS]
    weights = works[0].weight_bytes
    short = card is not None and weights > card.memory_nbytes
    fits = f"<br>weights {weights / 1e9:,.1f} GB: more than its memory, computed as if they fitted" if short else ""
    seconds = [max(w.flops / roof.flops_per_second, w.nbytes / roof.bytes_per_second) for w in works]
    return [
        f"computed: {model} on {roof.name}<br>{mark.name}: at least {_time(s)}, "
        f"limit: {'memory' if mark.intensity < roof.ridge else 'arithmetic'}{fits}"
        for mark, s in zip(marks, seconds, strict=True)
    ]


def _time(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds >= 1 else f"{1000 * seconds:,.3g} ms"
