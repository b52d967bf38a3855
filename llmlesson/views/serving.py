"""The throughput–latency curve: tokens a second for each user against those in all, along the number of users.

Both axes are logarithmic. Each curve ends at the memory wall. Where arithmetic takes over as the limit, it turns flat:
more users then only wait longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

from llmlesson.measure.serving import Point, Service
from llmlesson.views.loglog import HEIGHT, WIDTH, LogLog
from llmlesson.views.markup import folded, label, note, svg, table
from llmlesson.views.plot import DASHES, FONT, NEUTRAL, Pictured, colour, new_figure
from llmlesson.views.style import PALETTE, paint

SVG_DASHES = ("6 3", "2 3", "9 3 2 3")
PLACES = ("bottom left", "bottom right", "top right")  # of a curve's name beside its last point: the curves lie close


class Curve(NamedTuple):
    """One model and one kind of cache in one place, for several shares of prompts. Computed, unless `measured`."""

    place: str  # a card, or "this machine"
    name: str
    services: Mapping[str, Service]  # by what the requests are like, such as "3,500 in, 500 out"
    measured: Sequence[Point] = ()


def serving_figure(curves: Sequence[Curve], title: str = "How fast for each, and how much in all") -> Pictured:
    """A menu chooses the place, a slider what the requests are like; computed hollow and dashed, measured filled.

    All curves have the same kinds of requests, the first place and the last kind are shown first. Raises KeyError where
    a curve lacks a kind.
    """
    places = list(dict.fromkeys(curve.place for curve in curves))
    kinds = list(curves[0].services)
    figure = new_figure(title, "tokens a second, for each user", "tokens a second, in all")
    for curve in curves:
        index = [other.name for other in curves if other.place == curve.place].index(curve.name)
        figure.add_scatter(
            **_data(curve, kinds[-1]),
            mode="lines+markers+text",
            textposition=PLACES[index % len(PLACES)],
            line=dict(color=colour("answer"), width=2, dash=DASHES[1:][index % (len(DASHES) - 1)]),
            marker=dict(color=colour("answer"), size=9, line_width=2),
            name=curve.name,
            hovertemplate="%{hovertext}<extra></extra>",
            visible=curve.place == places[0],
        )
    for curve in curves:
        if curve.measured:
            figure.add_scatter(
                x=[point.each for point in curve.measured],
                y=[point.in_all for point in curve.measured],
                mode="lines+markers",
                line=dict(color=colour("answer"), width=2),
                marker=dict(color=colour("answer"), size=9),
                hovertext=[f"measured here: {says(point).rpartition('<br>')[0]}" for point in curve.measured],
                hovertemplate="%{hovertext}<extra></extra>",
                name=f"{curve.name}, measured",
                visible=curve.place == places[0],
            )
    owners = [curve.place for curve in curves] + [curve.place for curve in curves if curve.measured]
    if len(places) > 1:
        figure.update_layout(updatemenus=[_menu(places, owners)])
    if len(kinds) > 1:
        figure.update_layout(sliders=[_slider(curves, kinds)])
    figure.update_layout(height=520, margin=dict(l=70, t=96, r=64, b=120 if len(kinds) > 1 else 56))
    figure.update_xaxes(type="log", dtick="D2", range=_range(curves, "each"))
    figure.update_yaxes(type="log", dtick=1, range=_range(curves, "in_all"))
    shown = [curve for curve in curves if curve.place == places[0]]
    return Pictured(figure, serving_picture(shown, kinds[-1]), serving_text(shown, kinds[-1]))


def says(point: Point) -> str:
    """A point in words: what each user gets, and Little's law with its numbers."""
    return (
        f"{_short(point)}<br>"
        f"{point.requests_per_second:,.3g} requests/s × {point.request_seconds:,.3g} s = {point.users:,} in flight<br>"
        f"{point.step_tokens:,.0f} tokens a step, limit: {point.limit}"
    )


def _data(curve: Curve, kind: str) -> dict[str, list[Any]]:
    service = curve.services[kind]
    points = with_turn(service)
    turn = service.turning_point
    symbols = ["diamond-open" if point.users == turn else "circle-open" for point in points]
    if symbols:
        symbols[-1] = "square-open"
    return {
        "x": [point.each for point in points],
        "y": [point.in_all for point in points],
        "text": ["" for _ in points[1:]] + [curve.name for _ in points[:1]],
        "hovertext": [f"computed, {curve.name} on {curve.place}:<br>{says(point)}" for point in points],
        "marker.symbol": symbols,
    }


def with_turn(service: Service) -> list[Point]:
    """The curve with the point where arithmetic becomes the limit, fewest users first."""
    points = {point.users: point for point in service.curve()}
    if service.turning_point is not None:
        points[service.turning_point] = service.at(service.turning_point)
    return [points[users] for users in sorted(points)]


def _range(curves: Sequence[Curve], what: str) -> list[float]:
    values = [getattr(p, what) for curve in curves for service in curve.services.values() for p in service.curve()]
    values += [getattr(point, what) for curve in curves for point in curve.measured]
    return [log10(min(values)) - 0.15, log10(max(values)) + 0.15]


def _menu(places: Sequence[str], owners: Sequence[str]) -> dict[str, Any]:
    return dict(
        buttons=[
            dict(label=place, method="restyle", args=[{"visible": [owner == place for owner in owners]}])
            for place in places
        ],
        active=0,
        x=0,
        y=1.02,
        xanchor="left",
        yanchor="bottom",
        # plotly lights up what the mouse is on, with a pale blue of its own: the menu has light tones in both themes.
        font=dict(family=FONT, color=PALETTE["ink"].light),
        bgcolor=PALETTE["panel"].light,
        bordercolor=NEUTRAL,
    )


def _slider(curves: Sequence[Curve], kinds: Sequence[str]) -> dict[str, Any]:
    steps = []
    for kind in kinds:
        data = [_data(curve, kind) for curve in curves]
        changed = {key: [one[key] for one in data] for key in ("x", "y", "text", "hovertext", "marker.symbol")}
        steps.append(dict(label=kind, method="restyle", args=[changed, list(range(len(curves)))]))
    return dict(
        steps=steps,
        active=len(kinds) - 1,
        currentvalue=dict(prefix="a request: ", xanchor="left"),
        pad=dict(t=44),
        bordercolor=NEUTRAL,
        tickcolor=NEUTRAL,
    )


def serving_picture(curves: Sequence[Curve], kind: str) -> str:
    """The still of one place: its curves for one kind of request, what was measured, and the numbers to read. HTML."""
    lines = [(curve, with_turn(curve.services[kind])) for curve in curves]
    every = [point for curve, points in lines for point in (*points, *curve.measured)]
    low, high = floor(log10(min(p.in_all for p in every))), ceil(log10(max(p.in_all for p in every)) + 0.05)
    left, right = min(p.each for p in every) / 1.25, max(p.each for p in every) * 1.25
    plot = LogLog(left, right, 10**low, 10**high)
    parts = plot.axes(
        _ticks(left, right),
        [10**power for power in range(low, high + 1)],
        ("tokens a second, for each user", "tokens a second, in all"),
        ("{:,g}".format, "{:,g}".format),
    )
    for index, (curve, points) in enumerate(lines):
        places = [(plot.x(point.each), plot.y(point.in_all)) for point in points]
        path = plot.line([(point.each, point.in_all) for point in points])
        dash = SVG_DASHES[index % len(SVG_DASHES)]
        parts.append(f'<path d="{path}" {paint(stroke="answer", width=2, dash=dash)}/>')
        turn = curve.services[kind].turning_point
        for point, (px, py) in zip(points, places, strict=True):
            parts.append(_mark(px, py, wall=point is points[-1], turn=point.users == turn))
        for point in curve.measured:
            parts.append(
                f'<circle cx="{plot.x(point.each):.1f}" cy="{plot.y(point.in_all):.1f}" r="5" {paint("answer")}/>'
            )
        px, py = places[-1]
        where = PLACES[index % len(PLACES)]
        at, anchor = py - 24 if "top" in where else py + 22, "end" if "left" in where else "start"
        parts.append(label(px - 6, at, curve.name, anchor=anchor, bold=True))
        parts.append(label(px - 6, at + 14, _wall(points[-1], turn), anchor=anchor))
    spoken = f"Tokens a second in all against tokens a second for each user. {serving_text(curves, kind)}"
    measured = " Filled: measured on this machine." if any(curve.measured for curve in curves) else ""
    return (
        svg(WIDTH, HEIGHT, spoken, parts)
        + note(
            f"{curves[0].place}, a request: {kind}. Hollow: computed, for 1, 2, 4, … users from right to left. Square: "
            f"the memory is full. Diamond: from here on arithmetic is the limit.{measured}"
        )
        + folded("The same as a table", _table(lines))
    )


def _wall(last: Point, turn: int | None) -> str:
    knee = f"arithmetic from {turn:,} users on" if turn is not None else "memory is the limit all along"
    return f"full with {last.users:,} users; {knee}"


def _mark(px: float, py: float, wall: bool, turn: bool) -> str:
    look = paint(stroke="answer", width=2)
    if wall:
        return f'<path d="M{px - 6:.1f} {py - 6:.1f}h12v12h-12z" {look}/>'
    if turn:
        return f'<path d="M{px:.1f} {py - 8:.1f}l8 8l-8 8l-8 -8z" {look}/>'
    return f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" {look}/>'


def _ticks(left: float, right: float) -> list[float]:
    return [
        digit * 10.0**power
        for power in range(floor(log10(left)), ceil(log10(right)) + 1)
        for digit in (1, 2, 5)
        if left <= digit * 10.0**power <= right
    ]


def _table(lines: Sequence[tuple[Curve, Sequence[Point]]]) -> str:
    head = ("", "users", "tokens/s each", "tokens/s in all", "requests/s", "seconds a request", "limit")
    rows = []
    for curve, points in lines:
        rows += [(curve.name, *_row(point)) for point in points]
        rows += [(f"{curve.name}, measured", *_row(point)[:-1], "") for point in curve.measured]
    return table(head, rows)


def _row(point: Point) -> tuple[str, ...]:
    numbers = (point.each, point.in_all, point.requests_per_second, point.request_seconds)
    return (f"{point.users:,}", *(_digits(number) for number in numbers), point.limit)


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def serving_text(curves: Sequence[Curve], kind: str) -> str:
    """The twin of the picture in words: the ends of each curve, and what was measured."""
    lines = []
    for curve in curves:
        points = with_turn(curve.services[kind])
        ends = "; ".join(_short(point) for point in dict.fromkeys((points[0], points[-1])))
        wall = _wall(points[-1], curve.services[kind].turning_point)
        lines.append(f"{curve.name} on {curve.place}, {kind}, computed: {ends}; {wall}.")
        lines += [f"{curve.name}, measured here: {_short(point)}." for point in curve.measured]
    return "\n".join(lines)


def _short(point: Point) -> str:
    users = f"{point.users:,} user{'s' * (point.users > 1)}"
    return f"{users}: {_digits(point.each)} tokens/s each, {_digits(point.in_all)} in all"
