"""The benchmark as a page of plots that needs no network."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from llmlesson.benchmark.bench import DYNAMIC, INT8, NO_CACHE, OURS, STATIC, Report, Row
from llmlesson.measure.timing import Sample
from llmlesson.views.roofline import COLOURS, GREY, roofline_figure, style
from llmlesson.views.text import escape

# Contenders differ by symbol and dash as well as by colour.
STYLES = {
    OURS: (COLOURS[0], "circle", "solid"),
    INT8: (COLOURS[3], "triangle-up", "longdash"),
    DYNAMIC: (COLOURS[1], "square", "dash"),
    STATIC: (COLOURS[2], "diamond", "dot"),
    NO_CACHE: (GREY, "x", "dashdot"),
}


def page(report: Report) -> str:
    """A whole HTML page: decode speed and time to first token over prompt length, and the roofline."""
    own = {
        f"{phase} {row.prompt_tokens}" + (f" × {row.batch}" if row.batch > 1 else ""): placement
        for row in report.rows
        if row.contender == OURS
        for phase, placement in (("prefill", row.first), ("decode", row.step))
    }
    figures = [
        over_prompt_length(report, "Decode, time of a step", lambda row: row.step_sample),
        over_prompt_length(report, "Time to first token", lambda row: row.first_sample),
        roofline_figure(report.roofline, own),
    ]
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=index == 0, config={"displaylogo": False})
        for index, figure in enumerate(figures)
    ]
    title = escape(f"llmlesson bench: {report.model} on {report.roofline.device}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        "<style>:root { color-scheme: light dark }</style></head><body>" + "".join(parts) + "</body></html>\n"
    )


def over_prompt_length(report: Report, title: str, sample: Callable[[Row], Sample]) -> go.Figure:
    """Medians over the prompt lengths, batch size 1, with half the interquartile range to either side."""
    figure = go.Figure()
    for name, (colour, symbol, dash) in STYLES.items():
        rows = [row for row in report.rows if row.contender == name and row.batch == 1]
        figure.add_scatter(
            x=[row.prompt_tokens for row in rows],
            y=[1000 * sample(row).median for row in rows],
            error_y=dict(array=[500 * sample(row).spread for row in rows]),
            mode="lines+markers",
            name=name,
            line=dict(color=colour, dash=dash),
            marker=dict(symbol=symbol, size=9),
        )
    style(figure, title)
    lengths = sorted({row.prompt_tokens for row in report.rows if row.batch == 1})
    figure.update_xaxes(type="log", title="prompt, tokens", tickvals=lengths)
    figure.update_yaxes(type="log", title="ms", dtick="D2")
    return figure
