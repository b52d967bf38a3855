"""One request: its tokens, its answer, and where its time and memory go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from llmlesson.views.markup import band, code, folded, key_over_value, label, note, svg, table, title
from llmlesson.views.seconds import duration, ticks
from llmlesson.views.style import css, paint, styled
from llmlesson.views.text import escape, visible

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
        label(LABEL, 14, f"time: {duration(total)} in all", 12, bold=True),
        label(LABEL + TIME + 32, 14, f"KV cache, K over V: {sizes[-1]:,} bytes", 12, bold=True),
    ]
    for tick in ticks(total):
        x = LABEL + tick * scale
        parts.append(f'<path d="M{x:.1f} {AXIS - 6} V{height - 4}" {paint(stroke="line")}/>')
        parts.append(label(x, AXIS - 10, duration(tick), 11, "middle"))
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
    parts.append(label(where, AXIS + 13, f"first token after {duration(first)}", 12, anchor, bold=True))
    spoken = (
        f"Time and memory of one request. Tokenize {duration(tokenize)}, prefill of {prompt_tokens} tokens "
        f"{duration(prefill)}, so the first token comes after {duration(first)}. Then {len(decode)} decode steps, "
        f"{duration(sum(decode))} together. "
        f"The KV cache holds {sizes[1]:,} bytes after prefill and {sizes[-1]:,} bytes at the end."
    )
    rows = [
        (name, duration(start), duration(span), code(token), f"{size:,}")
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


def unsent() -> str:
    """What there is before a prompt was sent. HTML."""
    edge = css("border", "wait", "1.5px dotted")
    return styled(
        f'<div style="{edge}border-radius:6px;padding:1.2em;max-width:60em">Tokens, times, the KV cache and the answer '
        "appear here as soon as you press <strong>Send</strong>.</div>"
    )


def tokens_line(prompt: Sequence[str], typed: range, answer: Sequence[str]) -> str:
    """What was read and what was written, a chip for each token, in order. HTML.

    typed: the places in `prompt` that somebody typed. The chat template put the others there; they have no ground.
    """
    chips = [_chip(text, "prompt" if place in typed else "wait") for place, text in enumerate(prompt)]
    made = [_chip(text, "answer") for text in answer]
    read = title(f"Read: {len(prompt)} tokens, of which you typed {len(typed)} (blue)")
    written = title(f"Written: {len(answer)} tokens") if answer else ""
    style = "display:flex;flex-wrap:wrap;gap:3px 2px;line-height:1.5;max-width:60em;max-height:220px;overflow:auto"

    def region(name: str, inside: list[str]) -> str:
        return f'<div role="list" aria-label="{name}" tabindex="0" style="{style}">{"".join(inside)}</div>'

    return styled(read + region("tokens read", chips) + written + (region("tokens written", made) if made else ""))


def _chip(text: str, name: str) -> str:
    """A rounded chip in the hue of its work; one of the template has an outline and no ground."""
    look = {
        "prompt": css("background", "prompt-tint") + css("border", "prompt-tint", "1px solid"),
        "answer": css("background", "answer-tint") + "border:0;" + css("border-bottom", "answer", "2px solid"),
        "wait": css("border", "line", "1px solid"),
    }[name]
    inside = f'<code style="background:none;color:inherit;font-size:13px">{escape(visible(text))}</code>'
    return f'<span role="listitem" style="{look}border-radius:5px;padding:0 3px"><bdi>{inside}</bdi></span>'


def reply(text: str, writing: bool) -> str:
    """The answer as its reader sees it; while it is being written, with a mark at the end. HTML."""
    end = f'<span aria-hidden="true" style="{css("color", "answer")}"> ▍</span>' if writing else ""
    return title("The answer, as it is streamed") + note(text).replace("</bdi></p>", f"</bdi>{end}</p>")
