"""The benchmark as a page of plots that needs no network."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go

from llmlesson.benchmark.bench import DYNAMIC, INT8, NO_CACHE, OURS, STATIC, Report, Row
from llmlesson.measure.timing import Sample
from llmlesson.views.plot import DASHES, measured, name_lines, new_figure
from llmlesson.views.roofline import roofline_figure
from llmlesson.views.style import styled
from llmlesson.views.text import escape

# Contenders have no colours of their own: they differ by symbol, dash and name.
STYLES = dict(
    zip((OURS, INT8, DYNAMIC, STATIC, NO_CACHE), ("circle", "triangle-up", "square", "diamond", "x"), strict=True)
)


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
        "<style>:root { color-scheme: light dark }</style></head><body>" + styled("".join(parts)) + "</body></html>\n"
    )


def over_prompt_length(report: Report, title: str, sample: Callable[[Row], Sample]) -> go.Figure:
    """Medians over the prompt lengths, batch size 1, with half the interquartile range on either side."""
    figure = new_figure(title, "prompt, tokens", "ms")
    ends = {}
    for (name, symbol), dash in zip(STYLES.items(), DASHES, strict=False):
        rows = [row for row in report.rows if row.contender == name and row.batch == 1]
        figure.add_scatter(
            x=[row.prompt_tokens for row in rows],
            y=[1000 * sample(row).median for row in rows],
            error_y=dict(array=[500 * sample(row).spread for row in rows]),
            name=name,
            **measured("wait", symbol, dash),
        )
        if rows:
            ends[name] = (rows[-1].prompt_tokens, 1000 * sample(rows[-1]).median)
    name_lines(figure, ends)
    lengths = sorted({row.prompt_tokens for row in report.rows if row.batch == 1})
    figure.update_xaxes(type="log", tickvals=lengths)
    figure.update_yaxes(type="log", dtick="D2")
    return figure
