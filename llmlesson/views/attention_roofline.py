"""Attention of a decode step on the roofline of a card: how far it gets depends on how many heads share a byte."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10

from llmlesson.measure.data_sheets import DataSheet
from llmlesson.views.machines import roofs_of
from llmlesson.views.plot import COMPUTED_DASH, NEUTRAL, Pictured, colour, new_figure
from llmlesson.views.roofline_picture import Mark, roofline_picture


def attention_roofline(card: DataSheet, points: Mapping[str, float]) -> Pictured:
    """Kinds of attention at the limit of `card`, all computed. points: FLOPs per byte, by name."""
    [roof] = roofs_of([card])
    marks = [Mark(name, x, roof.at(x), measured=False, work="answer") for name, x in points.items()]
    figure = new_figure(
        f"Attention of a decode step on an {card.name}",
        "FLOPs per byte moved",
        "GFLOP/s",
        "computed, at the limit of the data sheet",
    )
    left, right = min(points.values()) / 2, max(roof.ridge, *points.values()) * 4
    figure.add_scatter(
        x=[left, roof.ridge, right],
        y=[roof.at(x) / 1e9 for x in (left, roof.ridge, right)],
        mode="lines",
        line=dict(color=NEUTRAL, width=2, dash=COMPUTED_DASH),
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[mark.intensity for mark in marks],
        y=[mark.flops_per_second / 1e9 for mark in marks],
        mode="markers+text",
        marker=dict(color=colour("answer"), symbol="circle-open", size=11, line_width=2),
        text=[mark.name for mark in marks],
        textposition=["top left" if index % 2 else "bottom right" for index in range(len(marks))],
        hovertext=[
            f"computed: {mark.name}<br>{mark.intensity:,.0f} FLOPs per byte: at most "
            f"{100 * mark.flops_per_second / roof.flops_per_second:.1f} % of the card’s arithmetic"
            for mark in marks
        ],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    peak = roof.flops_per_second / 1e9
    figure.add_annotation(text=f"{card.name}<br>ridge at {roof.ridge:,.0f}", x=log10(right), y=log10(peak))
    figure.update_xaxes(type="log", dtick=1, range=[log10(left), log10(right)])
    figure.update_yaxes(type="log", dtick=1)
    text = "; ".join(f"{mark.name}: {mark.intensity:,.0f}" for mark in marks)
    text = f"FLOPs per byte. {text}. Ridge of {card.name}: {roof.ridge:,.0f}."
    return Pictured(figure, roofline_picture([roof], marks), text)
