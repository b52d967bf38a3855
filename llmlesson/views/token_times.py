"""The time that each token of an answer took, in two ways or more: a figure to point at, and a still of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from llmlesson.views.markup import folded, label, svg, table
from llmlesson.views.plot import DASHES, Pictured, measured, new_figure
from llmlesson.views.style import paint

LEFT, TOP, WIDTH, HEIGHT, RIGHT = 62, 30, 560, 190, 170  # margins and size of the still
NAMES = 15  # pixels from one name to the next, at the ends of the lines
TITLE, ACROSS, UP = "Time for each token of the answer", "token of the answer", "milliseconds"


def token_times(seconds: Mapping[str, Sequence[float]], again: Collection[str] = ()) -> Pictured:
    """A line of measured times for each way. The figure shows a token's time where the mouse is.

    seconds: for each token, by name of the way; as many in each, at least two. again: the ways that read everything
    again for each token, which is the work of a prefill and has its colour.
    Raises ValueError where the numbers of tokens differ.
    """
    counts = {len(times) for times in seconds.values()}
    if len(counts) != 1:
        raise ValueError(f"the ways have different numbers of tokens: {sorted(counts)}")
    figure = new_figure(TITLE, ACROSS, UP, "measured on this machine")
    most = 1000 * max(max(times) for times in seconds.values())
    ends = {name: 1000 * times[-1] for name, times in seconds.items()}
    for index, (name, times) in enumerate(seconds.items()):
        figure.add_scatter(
            x=list(range(1, len(times) + 1)),
            y=[1000 * s for s in times],
            name=name,
            **measured(_work(name, again), _SYMBOLS[index % 2], DASHES[index]),
            hovertemplate=f"{name}<br>token %{{x}}: %{{y:.3g}} ms<extra></extra>",
        )
    figure.update_traces(marker_size=6)
    figure.update_xaxes(range=[0.5, counts.pop() + 0.5])
    figure.update_yaxes(range=[0, 1.08 * most], tickformat=",")
    scale = 420 - 64 - 44  # pixels of the figure, for all of the axis
    for name, above in _apart({name: scale * end / (1.08 * most) for name, end in ends.items()}).items():
        figure.add_annotation(
            text=name,
            x=len(seconds[name]),
            y=ends[name],
            yshift=above - scale * ends[name] / (1.08 * most),
        )
    figure.update_layout(margin_r=150)
    return Pictured(figure, _still(seconds, again), _spoken(seconds))


_SYMBOLS = ("square", "circle")


def _still(seconds: Mapping[str, Sequence[float]], again: Collection[str]) -> str:
    """The same without a script, with a table below; HTML."""
    tokens, most = len(next(iter(seconds.values()))), max(max(times) for times in seconds.values())
    x_step, bottom = WIDTH / (tokens - 1), TOP + HEIGHT
    parts = [label(LEFT, 14, f"{TITLE}, in {UP}, measured", 12, bold=True)]
    for tick in _ticks(1000 * most):
        y = bottom - HEIGHT * tick / (1000 * most)
        parts.append(f'<path d="M{LEFT} {y:.1f} H{LEFT + WIDTH}" stroke="currentColor" stroke-opacity=".2"/>')
        parts.append(label(LEFT - 8, y + 4, f"{tick:,}", 11, "end"))
    for token in sorted({1, tokens, *range(5, tokens - 2, 5)}):
        parts.append(label(LEFT + (token - 1) * x_step, bottom + 17, token, 11, "middle"))
    parts.append(label(LEFT + WIDTH / 2, bottom + 34, ACROSS, 12, "middle"))
    heights = {name: HEIGHT * times[-1] / most for name, times in seconds.items()}
    for index, (name, times) in enumerate(seconds.items()):
        work = _work(name, again)
        points = [(LEFT + i * x_step, bottom - HEIGHT * s / most) for i, s in enumerate(times)]
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dash = DASHES[index].replace("px", "").replace(",", " ").replace("solid", "")
        parts.append(f'<path d="M{path}" {paint(stroke=work, width=2, dash=dash)}/>')
        parts += [_mark(x, y, work, _SYMBOLS[index % 2]) for x, y in points]
    for name, above in _apart(heights).items():
        parts.append(label(LEFT + WIDTH + 10, bottom - above + 4, name, 12, bold=True))
    rows = [(i + 1, *(f"{1000 * times[i]:,.3g}" for times in seconds.values())) for i in range(tokens)]
    picture = svg(LEFT + WIDTH + RIGHT, bottom + 42, _spoken(seconds), parts)
    return picture + folded("The same as a table, in milliseconds", table(["token", *seconds], rows))


def _spoken(seconds: Mapping[str, Sequence[float]]) -> str:
    return "Milliseconds for each token. " + "; ".join(
        f"{name}: first {1000 * times[0]:,.3g}, the others {1000 * median(times[1:]):,.3g} in the middle, "
        f"last {1000 * times[-1]:,.3g}"
        for name, times in seconds.items()
    )


def _work(name: str, again: Collection[str]) -> str:
    """The meaning, of style.PALETTE, of what a way does for each token."""
    return "prompt" if name in again else "answer"


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Heights above the axis for names, the highest first, with room for each."""
    placed: dict[str, float] = {}
    for name, height in sorted(heights.items(), key=lambda item: -item[1]):
        placed[name] = min([height, *(above - NAMES for above in placed.values())])
    return placed


def _mark(x: float, y: float, colour: str, shape: str) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {paint(colour)}/>'
    return f'<rect x="{x - 2.5:.1f}" y="{y - 2.5:.1f}" width="5" height="5" {paint(colour)}/>'


def _ticks(most: float) -> list[int]:
    """Three to six round numbers from 0 to `most`."""
    step = next(m * 10**e for e in range(9) for m in (1, 2, 5) if most / (m * 10**e) < 6)
    return list(range(0, int(most) + 1, step))
