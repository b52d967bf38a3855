"""Two pictures of one request: the way it takes, and where its time and memory go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from llmlesson.views.markup import band, code, folded, key_over_value, label, svg, table
from llmlesson.views.style import paint
from llmlesson.views.text import visible

STAGES = {
    "Client": ("wait", "sends your text"),
    "Load balancer": ("wait", "picks a server"),
    "LLM server": ("wait", "takes the request"),
    "Tokenizer": ("wait", "text to numbers"),
    "Prefill": ("prompt", "reads the prompt"),
    "Decode": ("answer", "a token per step"),
    "Streaming response": ("answer", "text as it comes"),
}
BOX, GAP, TOP = 112, 22, 62  # width of a box, room for an arrow, upper edge of the boxes


def request_map(notes: Mapping[str, str] | None = None) -> str:
    """The seven stages of a request, left to right, as SVG.

    notes: what to write under a stage, by its name in STAGES; the others keep their usual line. A line end in a note
    starts a new line. Raises KeyError for a name that is no stage.
    """
    lines = {name: note for name, (_, note) in STAGES.items()}
    for name, note in (notes or {}).items():
        if name not in lines:
            raise KeyError(f"{name!r} is no stage; they are {', '.join(STAGES)}")
        lines[name] = note
    width = len(STAGES) * (BOX + GAP) + 4
    frame_left = 2 + 2 * (BOX + GAP)
    bottom = TOP + 70 + 15 * max(note.count("\n") + 1 for note in lines.values())
    parts = [
        # The server and what is inside it.
        f'<rect x="{frame_left}" y="6" width="{width - frame_left - 2}" height="{bottom - 6}" rx="10" '
        f"{paint(stroke='wait', dash='5 4')}/>",
        label(frame_left + 12, 25, "inside the server", 12),
    ]
    for index, (name, (colour, _)) in enumerate(STAGES.items()):
        left = 2 + GAP / 2 + index * (BOX + GAP)
        parts += _stage(left, index + 1, name, colour, lines[name].split("\n"))
        if index:
            parts.append(_arrow(left - GAP, left))
    spoken = "; ".join(f"{i}. {name}: {lines[name]}" for i, name in enumerate(STAGES, start=1))
    return svg(
        width,
        bottom + 4,
        f"The way of a request. {spoken}. Decode and streaming repeat for each token until the answer ends.",
        parts,
    )


def _stage(left: float, number: int, name: str, colour: str, note: list[str]) -> list[str]:
    middle = left + BOX / 2
    words = name.split(" ")
    look = paint("panel" if colour == "wait" else f"{colour}-tint", colour, 2)
    parts = [
        f'<rect x="{left}" y="{TOP}" width="{BOX}" height="54" rx="8" {look}/>',
        label(left + 8, TOP + 15, number, 11),
    ]
    parts += [
        label(middle, TOP + (32 if len(words) == 1 else 26) + 17 * i, w, 14, "middle", bold=True)
        for i, w in enumerate(words)
    ]
    parts += [label(middle, TOP + 73 + 15 * i, line, 12, "middle") for i, line in enumerate(note)]
    if name == "Streaming response":
        # Back to Decode: a token is on its way while the next is computed.
        a, b, top = middle + 10, middle - BOX - GAP + 10, TOP - 1
        parts.append(
            f'<path d="M{a} {top} C{a} {top - 26} {b} {top - 26} {b} {top - 7}" {paint(stroke="answer", width=2)}/>'
            f'<path d="M{b - 4.5} {top - 8} h9 l-4.5 8 z" {paint("answer")}/>'
        )
        parts.append(label((a + b) / 2, TOP - 25, "again, for each token", 11, "middle"))
    return parts


def _arrow(start: float, end: float) -> str:
    y = TOP + 27
    return (
        f'<path d="M{start + 3} {y} H{end - 9}" stroke="currentColor" stroke-width="1.5"/>'
        f'<path d="M{end - 10} {y - 4.5} v9 l8 -4.5 z" fill="currentColor"/>'
    )


ROW, AXIS, LABEL, TIME, MEMORY = 19, 44, 158, 450, 292  # heights of a row and of the head; widths of the columns
PREFILL, DECODE = 17, 9  # heights of the bars: one big pass, many small ones


def waterfall(
    tokenize: float,
    prefill: float,
    decode: Sequence[float],
    cache_nbytes: Sequence[int],
    prompt_tokens: int,
    texts: Sequence[str],
) -> str:
    """Where the time of one request went, each row starting where the one before ended, and the cache beside it. HTML.

    tokenize, prefill, decode: seconds, one number for each decode step. cache_nbytes, texts: the bytes in the cache
    after prefill and after each decode step, and the text of the token that each gave: 1 + len(decode) of them.
    Raises ValueError where the lengths do not fit.
    """
    if not len(cache_nbytes) == len(texts) == 1 + len(decode):
        raise ValueError(f"{len(decode)} decode steps need {1 + len(decode)} sizes and texts, the first for prefill")
    seconds = [tokenize, prefill, *decode]
    names = ["tokenize", f"prefill, {prompt_tokens} tokens", *(f"decode step {i}" for i in range(1, 1 + len(decode)))]
    tokens = ["", *texts]
    sizes = [0, *cache_nbytes]
    ends = list(accumulate(seconds))
    starts = [0.0, *ends[:-1]]
    total, first = ends[-1], ends[1]
    scale = TIME / (total or 1)
    height = AXIS + ROW * len(seconds) + 6

    parts = [
        label(LABEL, 14, f"time: {_ms(total)} in all", 12, bold=True),
        label(LABEL + TIME + 32, 14, f"KV cache, K over V: {sizes[-1]:,} bytes", 12, bold=True),
    ]
    for tick in _ticks(total):
        x = LABEL + tick * scale
        parts.append(f'<path d="M{x:.1f} {AXIS - 6} V{height - 4}" {paint(stroke="line")}/>')
        parts.append(label(x, AXIS - 10, _ms(tick), 11, "middle"))
    added = ["", *_added(sizes[1:])]
    for row, (name, token, start, span) in enumerate(zip(names, tokens, starts, seconds, strict=True)):
        y = AXIS + ROW * row
        parts += _time_bar(y, row, name, token, LABEL + start * scale, span * scale)
        parts += _cache_bar(y, row, sizes, added[row])
    x = LABEL + first * scale
    parts.append(f'<path d="M{x:.1f} {AXIS - 6} V{height - 4}" {paint(stroke="prompt", width=2, dash="4 3")}/>')
    # Beside the line, in the row of tokenize, on the side where there is room.
    left_of_line = x > LABEL + TIME * 0.6
    where, anchor = (x - 8, "end") if left_of_line else (x + 8, "start")
    parts.append(label(where, AXIS + 13, f"first token after {_ms(first)}", 12, anchor, bold=True))
    spoken = (
        f"Time and memory of one request. Tokenize {_ms(tokenize)}, prefill of {prompt_tokens} tokens {_ms(prefill)}, "
        f"so the first token comes after {_ms(first)}. Then {len(decode)} decode steps, {_ms(sum(decode))} together. "
        f"The KV cache holds {sizes[1]:,} bytes after prefill and {sizes[-1]:,} bytes at the end."
    )
    rows = [
        (name, _ms(start), _ms(span), code(token), f"{size:,}")
        for name, token, start, span, size in zip(names, tokens, starts, seconds, sizes, strict=True)
    ]
    return svg(LABEL + TIME + 32 + MEMORY, height, spoken, parts) + folded(
        "The same as a table", table(("stage", "starts", "takes", "gives", "bytes in the KV cache"), rows)
    )


def _time_bar(y: float, row: int, name: str, token: str, x: float, width: float) -> list[str]:
    colour = ("wait", "prompt")[row] if row < 2 else "answer"
    tall = PREFILL if row == 1 else DECODE
    parts = [label(LABEL - 10, y + 13, name, 12, "end"), band(x, y + (ROW - tall) / 2, max(width, 2), tall, colour)]
    if token:
        # After the bar, or before it where that would run into the next column.
        after = x + width < LABEL + TIME - 90
        where = x + width + 6 if after else x - 6
        parts.append(label(where, y + 13, visible(token), 12, "start" if after else "end", mono=True))
    return parts


def _cache_bar(y: float, row: int, sizes: Sequence[int], says: str) -> list[str]:
    """What was there before at 70 %, and what this row added in full, framed in the colour of its work."""
    left, height = LABEL + TIME + 32, ROW - 5
    scale = (MEMORY - 130) / (sizes[-1] or 1)
    before, now = (sizes[row - 1] if row else 0) * scale, sizes[row] * scale
    parts = [key_over_value(left, y + 2, before, height, 0.7)] if before else []
    if now > before:
        frame = paint(stroke="prompt" if row == 1 else "answer", width=2)
        parts.append(key_over_value(left + before, y + 2, now - before, height))
        parts.append(
            f'<rect x="{left + before:.1f}" y="{y + 2}" width="{now - before:.1f}" height="{height}" {frame}/>'
        )
    parts.append(label(left + MEMORY - 4, y + 13, says, 11, "end"))
    return parts


def _added(sizes: Sequence[int]) -> list[str]:
    """What to write beside each size: the first and the last in full, between them only what changes."""
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    even = len(set(steps)) == 1
    says = [f"{sizes[0]:,} bytes"]
    for index, step in enumerate(steps):
        if index == len(steps) - 1 and index:
            says.append(f"{sizes[-1]:,} bytes")
        else:
            says.append(f"+{step:,}{' each' if even and len(steps) > 1 else ''}" if not even or not index else "")
    return says


def _ms(seconds: float) -> str:
    """A duration to about three digits."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    ms = 1000 * seconds
    return f"{ms:.0f} ms" if ms >= 10 or ms == 0 else f"{ms:.1f} ms"


def _ticks(total: float) -> list[float]:
    """Three to six round times from 0 to `total` seconds."""
    if total <= 0:
        return [0.0]
    steps = [m * 10.0**e for e in range(-7, 5) for m in (1, 2, 5)]
    step = next((later for earlier, later in pairwise(steps) if total / later < 6), steps[-1])
    return [i * step for i in range(int(total / step) + 1)]
