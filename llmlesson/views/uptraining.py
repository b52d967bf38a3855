"""How a model heals whose KV heads were merged: perplexity over the steps of a short training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

from llmlesson.views.markup import folded, label, note, svg, table
from llmlesson.views.plot import DASHES, NEUTRAL, Pictured, new_figure
from llmlesson.views.style import paint

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 340, 66, 270, 20, 46
TITLE, ACROSS, UP = "Trained on after the merge", "steps of training", "perplexity"


class _Line(NamedTuple):
    name: str
    points: list[tuple[int, float]]  # step, perplexity
    texts: list[str]  # what the model wrote then


def uptraining_picture(record: Mapping[str, Any]) -> Pictured:
    """Three lines, of what `bench/uptraining.py` recorded. Hovering over a point shows what the model wrote then."""
    lines = _lines(record["runs"])
    figure = new_figure(TITLE, ACROSS, UP, "recorded once; point at a disc to read what the model wrote then")
    for line, dash in zip(lines, DASHES, strict=False):
        figure.add_scatter(
            x=[step for step, _ in line.points],
            y=[perplexity for _, perplexity in line.points],
            mode="lines+markers",
            line=dict(color=NEUTRAL, width=2, dash=dash),
            marker=dict(color=NEUTRAL, size=8),
            name=line.name,
            customdata=[[repr(text)] for text in line.texts],
            hovertemplate=f"{record['prompt']} …<br>%{{customdata[0]}}<br>step %{{x}}, perplexity %{{y:,.4~r}}",
        )
        step, perplexity = line.points[-1]
        figure.add_annotation(text=line.name, x=step, y=log10(perplexity))
    last = max(step for line in lines for step, _ in line.points)
    figure.update_layout(margin=dict(l=90, r=RIGHT))
    figure.update_xaxes(range=[-0.03 * last, 1.03 * last])
    figure.update_yaxes(type="log", dtick=1, tickformat=",~g", title_standoff=14)
    return Pictured(figure, _still(lines) + _below(record), _spoken(lines))


def _lines(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[_Line]:
    def line(name: str, run: str, key: str) -> _Line:
        return _Line(name, [(at["step"], at[key]) for at in runs[run]], [at["text"] for at in runs[run]])

    return [
        line("1 KV head: text like the training’s", "1", "perplexity"),
        line("1 KV head: the paragraph on water", "1", "other"),
        line("3 KV heads: text like the training’s", "3", "perplexity"),
    ]


def _still(lines: Sequence[_Line]) -> str:
    values = [perplexity for line in lines for _, perplexity in line.points]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    last = max(step for line in lines for step, _ in line.points)
    ticks = range(0, last + 1, next(n for n in (10, 20, 50, 100) if last / n <= 8))

    def x(step: float) -> float:
        return LEFT + step / last * (WIDTH - LEFT - RIGHT)

    def y(perplexity: float) -> float:
        return TOP + (high - log10(perplexity)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [label(LEFT, 12, UP, 12, bold=True), label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, ACROSS, anchor="middle")]
    for power in range(low, high + 1):
        parts.append(f'<path d="M{LEFT} {y(10**power):.1f}H{WIDTH - RIGHT}" {paint(stroke="line")}/>')
        parts.append(label(LEFT - 8, y(10**power) + 4, f"{10**power:,}", anchor="end"))
    parts += [label(x(step), HEIGHT - BOTTOM + 16, step, anchor="middle") for step in ticks]
    for line, dash in zip(lines, ("", "6 3", "2 3"), strict=True):
        path = "L".join(f"{x(step):.1f} {y(perplexity):.1f}" for step, perplexity in line.points)
        parts.append(f'<path d="M{path}" {paint(stroke="ink", width=2, dash=dash)}/>')
        for step, perplexity in line.points:
            at = f'cx="{x(step):.1f}" cy="{y(perplexity):.1f}"'
            parts.append(f"<g><title>step {step}: {_digits(perplexity)}</title><circle {at} r='4' {paint('ink')}/></g>")
        step, perplexity = line.points[-1]
        parts.append(label(x(step) + 10, y(perplexity) + 4, f"{line.name}, {_digits(perplexity)}"))
    return svg(WIDTH, HEIGHT, _spoken(lines), parts)


def _below(record: Mapping[str, Any]) -> str:
    run = record["runs"]["1"]
    rows = [(at["step"], _digits(at["perplexity"]), _digits(at["other"]), repr(at["text"])) for at in run]
    head = ("step", "text like the training’s", "the paragraph on water", f"after {record['prompt']!r} it wrote")
    says = (
        f"Recorded once, on a CPU, {record['cpu_seconds'] / 60:.0f} minutes: {record['model']}, {record['merge']}; "
        f"{record['tokens_a_step']} tokens a step, {record['text']}."
    )
    return note(says) + folded("The merged model, step by step", table(head, rows))


def _spoken(lines: Sequence[_Line]) -> str:
    ways = []
    for line in lines:
        (_, before), (steps, after) = line.points[0], line.points[-1]
        ways.append(f"{line.name}: {_digits(before)} before, {_digits(after)} after {steps} steps")
    return f"{UP.capitalize()} over {ACROSS}. {'; '.join(ways)}."


def _digits(perplexity: float) -> str:
    """Three digits, and never as a power of ten."""
    return f"{perplexity:,.0f}" if perplexity >= 100 else f"{perplexity:.3g}"
