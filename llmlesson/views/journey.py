"""One request's way through a server: queue, prefill, decode, stream, and what its client saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llmlesson.views.markup import announced, band, folded, label, note, svg, table
from llmlesson.views.seconds import duration, ticks
from llmlesson.views.style import paint, styled

if TYPE_CHECKING:
    from llmlesson.server.exchange import Exchange

LABEL, TIME, RIGHT, AXIS, ROW = 116, 760, 120, 44, 27
PREFILL, DECODE = 17, 9


def journey(entry: Mapping[str, Any], exchange: Exchange | None = None) -> str:
    """Draw one request from its access log: HTML, an SVG and a table.

    entry: of `Server.log`, or a line of the log's file. exchange: the same request as its client saw it. Client and
    server have clocks of their own: the server's times are placed so that the ways there and back are equally long.
    Raises ValueError for an entry without an answer, and for an exchange with another id.
    """
    answered = [choice for choice in entry["choices"] if choice["started"] is not None and choice["tokens"]]
    if not answered:
        raise ValueError(f"request {entry['id']} has no answer: status {entry['status']}")
    if exchange and exchange.request_id != entry["id"]:
        raise ValueError(f"the log is of {entry['id']}, the exchange of {exchange.request_id}")
    ends = entry["sent"][-1] if entry["sent"] else entry["seconds"]
    total = exchange.latency if exchange else ends
    shift = max(0.0, total - ends) / 2  # the server's clock on the client's: half of what the client waited longer
    scale = TIME / (max(total, ends + shift) or 1)

    def x_of(seconds: float) -> float:
        return LABEL + (seconds + shift) * scale

    lanes = [("tokenize", _bar(0.0, answered[0]["queued"], "wait", DECODE))]
    for number, choice in enumerate(answered, start=1):
        name = "model" if len(answered) == 1 else f"model, choice {number}"
        lanes.append((name, _work(choice)))
    if entry["sent"]:
        lanes.append(("stream", _bar(entry["sent"][0], ends, "answer", 2.5)))
    if exchange:
        lanes.append(("client", _client(exchange, shift)))
    height = AXIS + ROW * len(lanes) + 6
    parts = []
    for tick in ticks(total):
        x = LABEL + tick * scale
        parts.append(f'<path d="M{x:.1f} {AXIS - 6} V{height - 4}" {paint(stroke="line")}/>')
        parts.append(label(x, AXIS - 10, duration(tick), 11, "middle"))
    for row, (name, draw) in enumerate(lanes):
        middle = AXIS + ROW * (row + 0.5)
        parts += [label(LABEL - 10, middle + 4, name, 12, "end"), *draw(x_of, middle)]
    rows = _stages(answered[0], entry, exchange)
    spoken = f"Request {entry['id']}: " + "; ".join(f"{name} {duration(seconds)}" for name, seconds, _ in rows) + "."
    explained = "Dotted: waiting. Blue: prefill. Each orange bar: a decode step. The line: the stream."
    where = "Measured by the server" + (" and its client; the network's time is split evenly." if exchange else ".")
    return styled(
        announced(f"{len(answered[0]['tokens'])} tokens in {duration(total)}")
        + svg(LABEL + TIME + RIGHT, height, spoken, parts)
        + note(f"{explained} {where}")
        + folded("The same as a table", table(("stage", "takes", ""), [(n, duration(s), w) for n, s, w in rows]))
    )


Draw = Callable[[Callable[[float], float], float], list[str]]


def _bar(start: float, end: float, colour: str, tall: float) -> Draw:
    def draw(x_of: Callable[[float], float], middle: float) -> list[str]:
        return [band(x_of(start), middle - tall / 2, max(x_of(end) - x_of(start), 1), tall, colour)]

    return draw


def _waiting(start: float, end: float, x_of: Callable[[float], float], middle: float) -> str:
    look = paint(stroke="wait", width=1.5, dash="1.5 2.5")
    width = max(x_of(end) - x_of(start), 1)
    return f'<rect x="{x_of(start):.1f}" y="{middle - 7}" width="{width:.1f}" height="14" {look}/>'


def _work(choice: Mapping[str, Any]) -> Draw:
    def draw(x_of: Callable[[float], float], middle: float) -> list[str]:
        tokens = choice["tokens"]
        parts = [_waiting(choice["queued"], choice["started"], x_of, middle)]
        parts += _bar(choice["started"], tokens[0], "prompt", PREFILL)(x_of, middle)
        for before, after in pairwise(tokens):
            width = x_of(after) - x_of(before)
            gap = min(2, width / 3)
            parts.append(band(x_of(before) + gap / 2, middle - DECODE / 2, width - gap, DECODE, "answer"))
        if choice["finish_reason"] not in ("eos", "stop", "length", "cache_full"):
            parts.append(label(x_of(tokens[-1]) + 5, middle + 4, f"✗ {choice['finish_reason']}", 12, colour="broken"))
        return parts

    return draw


def _client(exchange: Exchange, shift: float) -> Draw:
    def draw(x_of: Callable[[float], float], middle: float) -> list[str]:
        at = [seconds - exchange.sent - shift for seconds in exchange.arrivals]
        parts = [_waiting(-shift, at[0] if at else exchange.latency - shift, x_of, middle)]
        if at:
            marks = "".join(f"M{x_of(seconds):.1f} {middle - 7}v14" for seconds in at)
            parts.append(f'<path d="{marks}" {paint(stroke="answer", width=1.5)}/>')
        return parts

    return draw


def _stages(choice: Mapping[str, Any], entry: Mapping[str, Any], exchange: Exchange | None) -> list[tuple[Any, ...]]:
    """(name, seconds, what it is) of each stage of the first choice."""
    tokens = choice["tokens"]
    rows = [
        ("tokenize", choice["queued"], "from arrival, with reading the body"),
        ("queue", choice["started"] - choice["queued"], "until a step first reads of it"),
        ("prefill", tokens[0] - choice["started"], f"{choice['prompt_tokens']:,} tokens of prompt"),
        ("decode", tokens[-1] - tokens[0], f"{len(tokens) - 1:,} steps"),
    ]
    if entry["sent"]:
        rows.append(("stream", entry["sent"][-1] - tokens[-1], "from the last token to the last byte sent"))
        if exchange:
            between = exchange.latency - entry["sent"][-1]
            rows.append(("network", between, "what the client waited longer than that: network, and a balancer"))
    return rows
