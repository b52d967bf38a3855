"""Two pictures of one request: the way it takes, and where its time and memory go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from llmlesson.views.text import escape, visible

# Okabe and Ito's colours, told apart also by colour-blind readers; every use stands beside a word.
GREY, BLUE, ORANGE, GREEN, PURPLE = "#888888", "#56B4E9", "#E69F00", "#009E73", "#CC79A7"

STAGES = {
    "Client": (GREY, "sends your text"),
    "Load balancer": (GREY, "picks a server"),
    "LLM server": (GREY, "takes the request"),
    "Tokenizer": (BLUE, "text to numbers"),
    "Prefill": (ORANGE, "reads the prompt"),
    "Decode": (GREEN, "a token per step"),
    "Streaming response": (PURPLE, "text as it comes"),
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
    frame_left = 2 + 3 * (BOX + GAP)
    bottom = TOP + 70 + 15 * max(note.count("\n") + 1 for note in lines.values())
    parts = [
        # The last four stages are the server's inside.
        f'<rect x="{frame_left}" y="14" width="{width - frame_left - 2}" height="{bottom - 14}" rx="10" fill="none" '
        'stroke="currentColor" stroke-opacity=".45" stroke-dasharray="5 4"/>',
        _text(width - 14, 31, "inside the server", 12, anchor="end"),
    ]
    for index, (name, (colour, _)) in enumerate(STAGES.items()):
        left = 2 + GAP / 2 + index * (BOX + GAP)
        parts += _stage(left, index + 1, name, colour, lines[name].split("\n"))
        if index:
            parts.append(_arrow(left - GAP, left))
    spoken = "; ".join(f"{i}. {name}: {lines[name]}" for i, name in enumerate(STAGES, start=1))
    return _svg(width, bottom + 4, f"The way of a request. {spoken}. Decode repeats until the answer ends.", parts)


def _stage(left: float, number: int, name: str, colour: str, note: list[str]) -> list[str]:
    middle = left + BOX / 2
    words = name.split(" ")
    parts = [
        f'<rect x="{left}" y="{TOP}" width="{BOX}" height="54" rx="8" fill="{colour}" fill-opacity=".22" '
        f'stroke="{colour}" stroke-width="2"/>',
        _text(left + 7, TOP + 15, str(number), 11),
    ]
    parts += [
        _text(middle, TOP + (32 if len(words) == 1 else 26) + 17 * i, w, 14, bold=True) for i, w in enumerate(words)
    ]
    parts += [_text(middle, TOP + 73 + 15 * i, line, 12) for i, line in enumerate(note)]
    if name == "Decode":
        a, b, top = middle + 26, middle - 26, TOP - 1
        parts.append(
            f'<path d="M{a} {top} C{a} {top - 32} {b} {top - 32} {b} {top - 7}" fill="none" '
            f'stroke="currentColor" stroke-width="1.5"/>'
            f'<path d="M{b - 4.5} {top - 8} h9 l-4.5 8 z" fill="currentColor"/>'
        )
        parts.append(_text(middle, TOP - 31, "again", 11))
    return parts


def _arrow(start: float, end: float) -> str:
    y = TOP + 27
    return (
        f'<path d="M{start + 3} {y} H{end - 9}" stroke="currentColor" stroke-width="1.5"/>'
        f'<path d="M{end - 10} {y - 4.5} v9 l8 -4.5 z" fill="currentColor"/>'
    )


ROW, AXIS, LABEL, TIME, MEMORY = 19, 44, 158, 450, 292  # heights of a row and of the head; widths of the columns


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
        _text(LABEL, 14, f"time: {_ms(total)} in all", 12, anchor="start", bold=True),
        _text(LABEL + TIME + 32, 14, f"KV cache: {sizes[-1]:,} bytes at the end", 12, anchor="start", bold=True),
    ]
    for tick in _ticks(total):
        x = LABEL + tick * scale
        parts.append(f'<path d="M{x:.1f} {AXIS - 6} V{height - 4}" stroke="currentColor" stroke-opacity=".18"/>')
        parts.append(_text(x, AXIS - 10, _ms(tick), 11, anchor="middle"))
    for row, (name, token, start, span, size) in enumerate(zip(names, tokens, starts, seconds, sizes, strict=True)):
        y = AXIS + ROW * row
        added = size - (sizes[row - 1] if row else 0)
        parts += _time_bar(y, row, name, token, LABEL + start * scale, span * scale)
        parts += _cache_bar(y, size, added, (MEMORY - 100) / (sizes[-1] or 1))
    x = LABEL + first * scale
    parts.append(
        f'<path d="M{x:.1f} {AXIS - 6} V{height - 4}" stroke="{ORANGE}" stroke-width="2" stroke-dasharray="4 3"/>'
    )
    # Beside the line, in the rows of tokenize and prefill, on the side where there is room.
    left_of_line = x > LABEL + TIME * 0.6
    parts.append(
        _text(
            x + (-8 if left_of_line else 8),
            AXIS + 13,
            f"first token after {_ms(first)}",
            12,
            anchor="end" if left_of_line else "start",
            bold=True,
        )
    )
    spoken = (
        f"Time and memory of one request. Tokenize {_ms(tokenize)}, prefill of {prompt_tokens} tokens {_ms(prefill)}, "
        f"so the first token comes after {_ms(first)}. Then {len(decode)} decode steps, {_ms(sum(decode))} together. "
        f"The KV cache holds {sizes[1]:,} bytes after prefill and {sizes[-1]:,} bytes at the end."
    )
    picture = _svg(LABEL + TIME + 32 + MEMORY, height, spoken, parts)
    return picture + _table(names, tokens, starts, seconds, sizes)


def _time_bar(y: float, row: int, name: str, token: str, x: float, width: float) -> list[str]:
    colour = (BLUE, ORANGE)[row] if row < 2 else GREEN
    parts = [
        _text(LABEL - 10, y + 13, name, 12, anchor="end"),
        f'<rect x="{x:.1f}" y="{y + 2}" width="{max(width, 2):.1f}" height="{ROW - 4}" rx="2" fill="{colour}"/>',
    ]
    if token:
        # After the bar, or before it where that would run into the next column.
        after = x + width < LABEL + TIME - 90
        where = x + width + 6 if after else x - 6
        parts.append(_text(where, y + 13, visible(token), 12, anchor="start" if after else "end", mono=True))
    return parts


def _cache_bar(y: float, size: int, added: int, scale: float) -> list[str]:
    """What was there before in a light tone, what this row added in a full one."""
    left, height = LABEL + TIME + 32, ROW - 6
    before, new = (size - added) * scale, added * scale
    parts = []
    if before:
        parts.append(
            f'<rect x="{left}" y="{y + 3}" width="{before:.1f}" height="{height}" fill="{PURPLE}" fill-opacity=".4"/>'
        )
    if added:
        parts.append(f'<rect x="{left + before:.1f}" y="{y + 3}" width="{new:.1f}" height="{height}" fill="{PURPLE}"/>')
    parts.append(_text(left + MEMORY - 4, y + 13, f"{size:,} bytes", 11, anchor="end"))
    return parts


def _table(
    names: Sequence[str], tokens: Sequence[str], starts: Sequence[float], seconds: Sequence[float], sizes: Sequence[int]
) -> str:
    """The same numbers to read, to copy, or to hear."""
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("stage", "starts", "takes", "gives", "bytes in the KV cache"))
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{_ms(start)}</td><td>{_ms(span)}</td>"
        f"<td><bdi><code>{escape(visible(token))}</code></bdi></td><td>{size:,}</td></tr>"
        for name, token, start, span, size in zip(names, tokens, starts, seconds, sizes, strict=True)
    )
    return f"<details><summary>The same as a table</summary><table><tr>{heads}</tr>{rows}</table></details>"


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


def _text(
    x: float, y: float, text: str, size: int, anchor: str = "middle", bold: bool = False, mono: bool = False
) -> str:
    style = ("font-weight:600;" if bold else "") + ("font-family:monospace;" if mono else "")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="currentColor" '
        f'style="{style}unicode-bidi:isolate">{escape(text)}</text>'
    )


def _svg(width: float, height: float, spoken: str, parts: Sequence[str]) -> str:
    """An SVG that shrinks with the page, but not until its letters can't be read: then it scrolls.

    Until the reader has run or trusted the notebook, JupyterLab takes the tags out of a picture and leaves the letters.
    So the letters bring their own size, and without the tags have none. In their place stands the description: what
    hides it otherwise, max-block-size, is taken out as well.
    """
    spoken = escape(spoken)
    return (
        f'<div style="overflow-x:auto;max-width:{width:.0f}px;font-size:0">'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{spoken}" style="width:100%;min-width:{0.75 * width:.0f}px;height:auto;display:block" '
        f'font-family="var(--jp-ui-font-family, sans-serif)"><title>{spoken}</title>{"".join(parts)}</svg>'
        f'<p aria-hidden="true" style="font-size:14px;margin:0;overflow:hidden;max-block-size:0">{spoken}</p></div>'
    )
