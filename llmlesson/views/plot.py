"""How every plotly figure of the course looks, on a light and on a dark page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import log10
from typing import Any

import plotly.graph_objects as go

from llmlesson.views.style import PALETTE, PLOT_FONT, see_through

FONT = "system-ui, sans-serif"
NEUTRAL = PALETTE["wait"].both
CLEAR, GRID = see_through("wait", 0), see_through("wait", 0.2)
# Models and machines have no colours of their own: their lines differ by dash and by the name at the end.
DASHES = ("solid", "6px,3px", "2px,3px", "9px,3px,2px,3px", "12px,4px", "4px,2px")
COMPUTED_DASH = "4px,3px"

_AXIS: dict[str, Any] = dict(gridcolor=GRID, zeroline=False, title_font_size=12)
TEMPLATE = go.layout.Template(
    layout=dict(
        colorway=[NEUTRAL],
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        showlegend=False,
        hovermode="closest",
        # The sheet of style.py gives letters of this font the page's colour; without it, they are grey.
        font=dict(family=f"{PLOT_FONT}, {FONT}", size=12, color=NEUTRAL),
        hoverlabel=dict(font_family=FONT),
        title=dict(font_size=15, x=0, xanchor="left"),
        margin=dict(l=56, r=120, t=44, b=44),
        height=420,
        bargap=0.25,
        xaxis=dict(**_AXIS, ticks="outside", ticklen=4, linecolor=NEUTRAL),
        yaxis=dict(**_AXIS, showline=False),
        annotationdefaults=dict(showarrow=False, xanchor="left", xshift=8),
    )
)


def new_figure(title: str, x: str, y: str, says: str = "") -> go.Figure:
    """An empty figure in the course's style. x, y: what the axes show, with the unit. says: a line under the title."""
    figure = go.Figure()
    figure.update_layout(template=TEMPLATE, title_text=title, xaxis_title_text=x, yaxis_title_text=y)
    if says:
        figure.update_layout(title_subtitle_text=says, margin_t=64)
    return figure


@dataclass(frozen=True, repr=False)
class Pictured:
    """A figure with a picture of the same data, for pages without a kernel and for notebooks as they are stored."""

    figure: go.Figure
    html: str
    text: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        # JupyterLab takes the first of these that it can draw; the notebook gate lets only the others be stored.
        plotly = json.loads(self.figure.to_json())
        return {"application/vnd.plotly.v1+json": plotly, "text/html": self.html, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def colour(name: str) -> str:
    """The tone of a meaning (style.PALETTE) that is visible in both themes. Raises KeyError for an unknown meaning."""
    return PALETTE[name].both


def measured(name: str, symbol: str = "circle", dash: str = "solid") -> dict[str, Any]:
    """How a line of measured values looks: filled marks. name: a meaning of style.PALETTE."""
    return dict(
        mode="lines+markers",
        line=dict(color=colour(name), width=2, dash=dash),
        marker=dict(color=colour(name), symbol=symbol, size=9),
    )


def computed(name: str, symbol: str = "circle") -> dict[str, Any]:
    """How a line of values computed for other hardware looks: dashed, with open marks."""
    return dict(
        mode="lines+markers",
        line=dict(color=colour(name), width=2, dash=COMPUTED_DASH),
        marker=dict(color=colour(name), symbol=f"{symbol}-open", size=9),
    )


def name_lines(figure: go.Figure, ends: Mapping[str, tuple[float, float]]) -> None:
    """Names at the last points of lines, in the right margin and apart from each other. Both axes are logarithmic.

    ends: (x, y) by name; y > 0. The figure must hold all its traces.
    """
    known = [value for trace in figure.data for value in trace.y if value]
    decades = log10(max(known) / min(known)) or 1.0
    height = figure.layout.height or TEMPLATE.layout.height
    scale = (height - TEMPLATE.layout.margin.t - TEMPLATE.layout.margin.b) / (1.1 * decades)  # pixels a decade
    before = math.inf
    for name, (x, y) in sorted(ends.items(), key=lambda item: -item[1][1]):
        at = log10(y) * scale
        before = min(at, before - 15)
        figure.add_annotation(text=name, x=log10(x), y=log10(y), yshift=before - at)
