"""The roofline of a device, with phases of a request under it."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from llmlesson.measure.roofline import Placement, Roofline
from llmlesson.views.plot import NEUTRAL, Pictured, colour, new_figure
from llmlesson.views.roofline_picture import Mark, Roof, roofline_picture

SYMBOLS = {"memory": "circle", "compute": "square"}


def roofline_figure(roofline: Roofline, points: Mapping[str, Placement]) -> go.Figure:
    """Speed over arithmetic intensity, both logarithmic: the two limits as lines, each named phase as a point.

    A phase is blue, or orange if its name says "decode". A circle is under the memory limit, a square under the other.
    """
    intensities = [roofline.ridge, *(point.cost.intensity for point in points.values())]
    left, right = min(intensities) / 4, max(intensities) * 4
    figure = new_figure(
        f"Roofline of {roofline.device}, {roofline.dtype}",
        "FLOPs per byte moved",
        "GFLOP/s",
        "measured; circles: memory is the limit, squares: compute is",
    )
    figure.add_scatter(
        x=[left, roofline.ridge, right],
        y=[
            left * roofline.bytes_per_second / 1e9,
            roofline.flops_per_second / 1e9,
            roofline.flops_per_second / 1e9,
        ],
        mode="lines",
        line=dict(color=NEUTRAL, width=2),
        hoverinfo="skip",
    )
    for limit, symbol in SYMBOLS.items():
        own = {name: point for name, point in points.items() if point.limit == limit}
        own = dict(sorted(own.items(), key=lambda item: item[1].cost.intensity))
        figure.add_scatter(
            x=[point.cost.intensity for point in own.values()],
            y=[point.flops_per_second / 1e9 for point in own.values()],
            mode="markers+text",
            marker=dict(
                symbol=symbol, color=[colour("answer" if "decode" in name else "prompt") for name in own], size=11
            ),
            text=list(own),
            # Neighbours are on alternate sides, so that their labels stay apart.
            textposition=["bottom right" if index % 2 else "top left" for index in range(len(own))],
            name=f"{limit} is the limit",
            hovertemplate="%{text}<br>%{x:.3g} FLOP/byte<br>%{y:.3g} GFLOP/s<extra></extra>",
        )
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def pictured_roofline(roofline: Roofline, points: Mapping[str, Placement]) -> Pictured:
    """The figure, and a still of it for pages without a kernel."""
    marks = [
        Mark(name, point.cost.intensity, point.flops_per_second, True, "answer" if "decode" in name else "prompt")
        for name, point in points.items()
    ]
    roof = Roof("this machine", roofline.bytes_per_second, roofline.flops_per_second, measured=True)
    return Pictured(roofline_figure(roofline, points), roofline_picture([roof], marks), roofline_text(roofline, points))


def roofline_text(roofline: Roofline, points: Mapping[str, Placement]) -> str:
    """The same in words and numbers, one line per phase."""
    lines = [f"{roofline.device}: {roofline}"]
    width = max(map(len, points), default=0)
    for name, point in points.items():
        lines.append(
            f"{name:<{width}}  {point.cost.intensity:7.1f} FLOP/byte  {point.flops_per_second / 1e9:8.1f} GFLOP/s  "
            f"{point.bytes_per_second / 1e9:7.1f} GB/s  MFU {point.mfu:4.0%}  MBU {point.mbu:4.0%}  "
            f"limit: {point.limit}"
        )
    return "\n".join(lines)
