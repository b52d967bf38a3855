"""The roofline of a device, with phases of a request under it."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from llmlesson.measure.roofline import Placement, Roofline

# Okabe and Ito's colours, told apart also by colour-blind readers; every use goes with a symbol or a dash.
COLOURS = ("#56B4E9", "#E69F00", "#CC79A7", "#009E73")
GREY, GRID = "#808080", "rgba(128,128,128,0.3)"
LIMITS = {"memory": ("circle", COLOURS[0]), "compute": ("square", COLOURS[1])}


def roofline_figure(roofline: Roofline, points: Mapping[str, Placement]) -> go.Figure:
    """Speed over arithmetic intensity, both logarithmic: the two limits as lines, each named phase as a point.

    Points differ by symbol and label as well as by colour: circles lie under the memory limit, squares under the other.
    """
    intensities = [roofline.ridge, *(point.cost.intensity for point in points.values())]
    left, right = min(intensities) / 4, max(intensities) * 4
    figure = go.Figure()
    figure.add_scatter(
        x=[left, roofline.ridge, right],
        y=[
            left * roofline.bytes_per_second / 1e9,
            roofline.flops_per_second / 1e9,
            roofline.flops_per_second / 1e9,
        ],
        mode="lines",
        line=dict(color=GREY, width=2),
        name="limit",
        hoverinfo="skip",
        showlegend=False,
    )
    for limit, (symbol, colour) in LIMITS.items():
        own = {name: point for name, point in points.items() if point.limit == limit}
        own = dict(sorted(own.items(), key=lambda item: item[1].cost.intensity))
        figure.add_scatter(
            x=[point.cost.intensity for point in own.values()],
            y=[point.flops_per_second / 1e9 for point in own.values()],
            mode="markers+text",
            marker=dict(symbol=symbol, color=colour, size=11),
            text=list(own),
            # Neighbours on alternate sides, so that their labels stay apart.
            textposition=["bottom right" if index % 2 else "top left" for index in range(len(own))],
            name=f"{limit} is the limit",
            hovertemplate="%{text}<br>%{x:.3g} FLOP/byte<br>%{y:.3g} GFLOP/s<extra></extra>",
        )
    style(figure, f"Roofline of {roofline.device}, {roofline.dtype}")
    figure.update_xaxes(type="log", title="FLOPs per byte moved", dtick=1)
    figure.update_yaxes(type="log", title="GFLOP/s", dtick="D2")
    return figure


def style(figure: go.Figure, title: str) -> None:
    """Transparent, with mid-grey text and grid: readable on a light and on a dark page."""
    figure.update_layout(
        title=dict(text=title, font=dict(size=14)),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font=dict(color=GREY),
        height=480,
        legend=dict(orientation="h", y=-0.2),
        margin=dict(l=60, r=20, t=50, b=60),
    )
    figure.update_xaxes(gridcolor=GRID, zerolinecolor=GRID, linecolor=GRID)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor=GRID, linecolor=GRID)


def roofline_text(roofline: Roofline, points: Mapping[str, Placement]) -> str:
    """The same in words and numbers, one line a phase."""
    lines = [f"{roofline.device}: {roofline}"]
    width = max(map(len, points), default=0)
    for name, point in points.items():
        lines.append(
            f"{name:<{width}}  {point.cost.intensity:7.1f} FLOP/byte  {point.flops_per_second / 1e9:8.1f} GFLOP/s  "
            f"{point.bytes_per_second / 1e9:7.1f} GB/s  MFU {point.mfu:4.0%}  MBU {point.mbu:4.0%}  "
            f"limit: {point.limit}"
        )
    return "\n".join(lines)
