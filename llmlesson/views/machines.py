"""One pass over a prompt on several machines: what was measured here beside what others' limits allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from llmlesson.measure import cost
from llmlesson.measure.data_sheets import DataSheet
from llmlesson.measure.roofline import Placement, Roofline
from llmlesson.views.plot import COMPUTED_DASH, FONT, NEUTRAL, Pictured, colour, new_figure
from llmlesson.views.roofline_picture import Mark, Roof, roofline_picture
from llmlesson.views.style import PALETTE

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
    limits: Roofline, points: Mapping[str, Placement], cards: Sequence[DataSheet], models: Mapping[str, Any]
) -> Pictured:
    """Two menus choose a machine and a model, and hollow points show what the limits allow; filled ones stay.

    limits, points: what was measured here. models: ModelConfig by name. A card computes with numbers of 16 bits, this
    machine with those of `limits.dtype`.
    """
    here = Roof(HERE, limits.bytes_per_second, limits.flops_per_second, measured=True)
    roofs = [here, *roofs_of(cards)]
    memory = {card.name: card.memory_nbytes for card in cards}
    chosen_roof, chosen_model = len(roofs) - 1, list(models)[min(1, len(models) - 1)]

    def data(roof: Roof, model: str) -> dict[str, list[Any]]:
        dtype = getattr(torch, limits.dtype) if roof.measured else torch.bfloat16
        marks = marks_of(roof, models[model], dtype)
        works = [cost.prefill(models[model], tokens, dtype=dtype) for tokens in TOKENS]
        weights = works[0].weight_bytes
        short = weights > memory.get(roof.name, float("inf"))
        fits = f"<br>weights {weights / 1e9:,.1f} GB: more than its memory, computed as if they fitted" if short else ""
        seconds = [max(w.flops / roof.flops_per_second, w.nbytes / roof.bytes_per_second) for w in works]
        return {
            "x": [mark.intensity for mark in marks],
            "y": [mark.flops_per_second / 1e9 for mark in marks],
            "text": [mark.name for mark in marks],
            "hovertext": [
                f"computed: {model} on {roof.name}<br>{mark.name}: at least {_time(s)}, "
                f"limit: {'memory' if mark.intensity < roof.ridge else 'arithmetic'}{fits}"
                for mark, s in zip(marks, seconds, strict=True)
            ],
        }

    figure = new_figure("Reading a prompt, here and elsewhere", "FLOPs per byte moved", "GFLOP/s")
    across = [x for roof in roofs for model in models for x in data(roof, model)["x"]]
    left, right = min(across) / 2, max(across) * 2
    for index, roof in enumerate(roofs):
        figure.add_scatter(
            x=[left, roof.ridge, right],
            y=[roof.at(value) / 1e9 for value in (left, roof.ridge, right)],
            mode="lines+text",
            text=["", "", f"{roof.name}, {'measured' if roof.measured else 'computed'}"],
            textposition="bottom left",
            line=dict(color=NEUTRAL, width=2, dash="solid" if roof.measured else COMPUTED_DASH),
            name=roof.name,
            hoverinfo="skip",
            visible=roof.measured or index == chosen_roof,
        )
    for index, roof in enumerate(roofs):
        figure.add_scatter(
            **data(roof, chosen_model),
            mode="markers+text",
            marker=dict(color=colour("prompt"), symbol="circle-open", size=11, line_width=2),
            textposition="top left",
            name=f"computed for {roof.name}",
            hovertemplate="%{hovertext}<extra></extra>",
            visible=index == chosen_roof,
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
    count = len(roofs)
    figure.update_layout(
        updatemenus=[
            dict(
                buttons=[
                    dict(
                        label=roof.name if roof.measured else f"{roof.name} (computed)",
                        method="restyle",
                        args=[
                            {"visible": [r.measured or r is roof for r in roofs] + [r is roof for r in roofs]},
                            list(range(2 * count)),
                        ],
                    )
                    for roof in roofs
                ],
                active=chosen_roof,
                **_place(0.0),
            ),
            dict(
                buttons=[
                    dict(
                        label=f"a model of {model}",
                        method="restyle",
                        args=[
                            {
                                key: [data(roof, model)[key] for roof in roofs]
                                for key in ("x", "y", "text", "hovertext")
                            },
                            list(range(count, 2 * count)),
                        ],
                    )
                    for model in models
                ],
                active=list(models).index(chosen_model),
                **_place(0.34),
            ),
        ],
        margin=dict(t=96, r=24),
        height=460,
    )
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    marks = [Mark(n, p.cost.intensity, p.flops_per_second, measured=True) for n, p in points.items()]
    computed = marks_of(roofs[chosen_roof], models[chosen_model])
    html = roofline_picture(roofs, [*marks, *computed])
    return Pictured(figure, html, f"Roofline of {limits.device} and of {', '.join(card.name for card in cards)}.")


def _place(x: float) -> dict[str, Any]:
    # plotly lights up what the mouse is on, with a pale blue of its own: the menu has light tones in both themes.
    font = dict(family=FONT, color=PALETTE["ink"].light)
    return dict(
        x=x, y=1.02, xanchor="left", yanchor="bottom", font=font, bgcolor=PALETTE["panel"].light, bordercolor=NEUTRAL
    )


def _time(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds >= 1 else f"{1000 * seconds:,.3g} ms"
