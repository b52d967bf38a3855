"""One decode step: the text so far, the candidates, what was computed and reused, the cache, the branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmlesson.views.markup import BLUE, CELL, GREEN, VERMILLION, note, svg, table, title
from llmlesson.views.text import escape, visible

MOST_COLUMNS = 48  # of the cache, that are drawn
COLUMN, CACHE_HEIGHT = 18, 46  # pixels
LETTERS = 15 + CACHE_HEIGHT / 2 + 4
BAR = 90
WRAP = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;line-height:1.4"


class Candidate(NamedTuple):
    """A token that could come next."""

    token_id: int
    text: str
    before: float  # probability as the model gives it
    after: float  # after temperature, top-k and top-p; 0 if they rule it out
    taken: bool


class Work(NamedTuple):
    """What one forward pass did. Counts of positions, FLOPs and bytes; seconds."""

    name: str  # "Prefill" or "Decode step 3"
    computed: int
    reused: int
    flops: int
    flops_without_cache: int
    weight_bytes: int
    kv_read_bytes: int
    kv_written_bytes: int
    seconds: float
    least_seconds: float | None  # what the measured limits of this machine allow; None where they are not known


class BranchRow(NamedTuple):
    """One branch beside the others."""

    name: str
    forked_at: int | None  # index of the first token that differs
    shared: str  # text before that
    own: str  # text from there on
    tokens: int
    current: bool


def answer(prompt: str, before: str, new: str, ended: str = "") -> str:
    """The prompt, the answer so far, and the newest token marked; HTML. `ended`: why there is no next step."""
    mark = f"background:{VERMILLION}40;border:2px solid {VERMILLION};border-radius:3px;padding:0 2px;{WRAP}"
    return (
        title("Prompt")
        + _scroller("Prompt", escape(prompt), 80)
        + title("Answer so far, the new token framed")
        + _scroller("Answer", f'{escape(before)}<mark style="color:inherit;{mark}">{escape(_spelled(new))}</mark>', 180)
        + (title(f"■ Ended: {ended}.") if ended else "")
        + note("The new token is chosen, but not yet read: its K and V come with the next step.")
    )


def candidates(rows: Sequence[Candidate], after: str) -> str:
    """The likeliest tokens as bars, before and after sampling's settings; HTML. after: those settings in words."""
    heads = ("", "token", "id", "as the model gives them", f"after {after}")
    head = "".join(f'<th scope="col" style="{CELL}text-align:left">{escape(text)}</th>' for text in heads)
    body = "".join(_candidate(number, row) for number, row in enumerate(rows, start=1))
    return (
        title("Candidates for the new token")
        + '<div style="overflow-x:auto"><table style="border-collapse:collapse;line-height:1.35">'
        + f"<tr>{head}</tr>{body}</table></div>"
    )


def work(w: Work) -> str:
    """Counts and time of one forward pass; HTML."""
    rows = [
        ("positions computed", f"{w.computed:,}", f"{w.computed + w.reused:,}"),
        ("positions reused from the cache", f"{w.reused:,}", "0"),
        ("FLOPs, counted", f"{w.flops:,}", f"{w.flops_without_cache:,}"),
        ("bytes read: weights", f"{w.weight_bytes:,}", ""),
        ("bytes read: K and V", f"{w.kv_read_bytes:,}", ""),
        ("bytes added to the cache", f"{w.kv_written_bytes:,}", ""),
        ("time", _ms(w.seconds), ""),
    ]
    if w.least_seconds is not None:
        share = w.least_seconds / w.seconds if w.seconds else 0
        rows.append(("roofline: this machine's limit", f"{_ms(w.least_seconds)} ({share:.0%} of the time)", ""))
    return title("What it took") + table(["", w.name, "without a cache"], rows)


def cache_columns(last: Sequence[str], length: int, prompt: int, new: int, waiting: str, column_nbytes: int) -> str:
    """The cache as a column for each position, the newest framed; SVG with a line above. HTML.

    last: texts of the tokens at its end, at most 48 of which are drawn. length: positions in all, of which the first
    `prompt` are the prompt's and the last `new` came with this step. waiting: the token that comes next.
    column_nbytes: of one position over all layers.
    """
    drawn = last[-MOST_COLUMNS:]
    first = length - len(drawn)
    end = len(drawn) * COLUMN + 1
    parts = [
        '<g font-size="10" text-anchor="middle" fill="currentColor">',
        *(
            _column(place, index, text, index < prompt, index >= length - new, column_nbytes)
            for place, (index, text) in enumerate(zip(range(first, length), drawn, strict=True))
        ),
        f"<g><title>waiting: {escape(visible(waiting))}, not yet in the cache</title>"
        f'<rect x="{end}" y="15" width="{COLUMN - 3}" height="{CACHE_HEIGHT}" fill="none" stroke="currentColor" '
        f'stroke-dasharray="3 3"/><text x="{end + 7}" y="{LETTERS}">?</text></g></g>',
    ]
    spoken = (
        f"KV cache: {length} positions, {prompt} of the prompt and {length - prompt} of the answer; "
        f"the last {new} came with this step"
    )
    hidden = f" The first {first:,} positions are not drawn." if first else ""
    return (
        title(f"KV cache: {length:,} positions × {column_nbytes:,} bytes = {length * column_nbytes:,} bytes")
        + svg(end + COLUMN + 4, 15 + CACHE_HEIGHT + 18, spoken, parts, shrink=1)
        + note(f"P prompt, A answer, ★ new in this step, ? the token that waits.{hidden}")
    )


def branches(rows: Sequence[BranchRow]) -> str:
    """The answers beside each other, each from where it leaves another; HTML. Empty for a single one."""
    if len(rows) < 2:
        return ""
    head = "".join(f'<th scope="col" style="{CELL}text-align:left">{h}</th>' for h in ("branch", "tokens", "text"))
    body = "".join(
        f'<tr style="font-weight:{600 if row.current else 400}">'
        f'<th scope="row" style="{CELL}font-weight:inherit">{"▶ " if row.current else ""}{escape(row.name)}</th>'
        f'<td style="{CELL}">{row.tokens}</td><td style="{CELL}text-align:left">{_branch_text(row)}</td></tr>'
        for row in rows
    )
    return (
        title("Branches; ┊ stands where one leaves another, ▶ before the current one")
        + f'<table style="border-collapse:collapse;line-height:1.35"><tr>{head}</tr>{body}</table>'
    )


def _candidate(number: int, row: Candidate) -> str:
    style = f'style="{CELL}text-align:left"'  # said in each cell: in a notebook's output they are flush right otherwise
    place = "▶ taken" if row.taken else number
    text = f'<code style="color:inherit;background:none">{escape(visible(row.text))}</code>'
    return (
        f'<tr style="font-weight:{600 if row.taken else 400}"><td {style}>{place}</td>'
        f"<td {style}><bdi>{text}</bdi></td><td {style}>{row.token_id}</td><td {style}>{_bar(row.before, BLUE)}</td>"
        f"<td {style}>{_bar(row.after, GREEN) if row.after else 'ruled out'}</td></tr>"
    )


def _branch_text(row: BranchRow) -> str:
    """What is shared, shortened from its beginning, and what is the branch's own."""
    shared = row.shared if len(row.shared) <= 60 else "…" + row.shared[-60:]
    own = row.own if len(row.own) <= 400 else row.own[:400] + "…"
    if row.forked_at is None:
        return f'<span style="{WRAP}">{escape(own)}</span>'
    style = f"border-bottom:2px solid {VERMILLION};{WRAP}"
    return f'<span style="{WRAP}">{escape(shared)}</span>┊<span style="{style}">{escape(own)}</span>'


def _column(place: int, index: int, text: str, prompt: bool, new: bool, nbytes: int) -> str:
    x, middle, colour = place * COLUMN + 1, place * COLUMN + 8.5, BLUE if prompt else GREEN
    frame = f'stroke="{VERMILLION}" stroke-width="3"' if new else f'stroke="{colour}"'
    letters = f'<text x="{middle}" y="{LETTERS}">{"P" if prompt else "A"}</text>'
    letters += f'<text x="{middle}" y="11">★</text>' if new else ""
    letters += f'<text x="{middle}" y="{15 + CACHE_HEIGHT + 14}">{index}</text>' if index % 5 == 0 else ""
    return (
        f"<g><title>position {index}: {escape(visible(text))}, {nbytes:,} bytes</title>"
        f'<rect x="{x}" y="15" width="{COLUMN - 3}" height="{CACHE_HEIGHT}" fill="{colour}" fill-opacity=".3" '
        f"{frame}/>{letters}</g>"
    )


def _bar(share: float, colour: str) -> str:
    width = round(share * BAR)
    bar = f"display:inline-block;vertical-align:middle;width:{width}px;height:11px;background:{colour}"
    return (
        f'<span style="display:inline-block;width:{BAR + 4}px;text-align:left"><span style="{bar}"></span></span>'
        + (f"{share:.1%}" if share >= 0.001 else "&lt;0.1%")
    )


def _scroller(label: str, html: str, height: int) -> str:
    style = f"max-height:{height}px;overflow:auto;padding:3px 8px;border:1px solid rgba(128,128,128,.6);{WRAP}"
    return f'<div tabindex="0" role="region" aria-label="{label}" dir="auto" style="{style}">{html}</div>'


def _spelled(token: str) -> str:
    """The new token; one that is nothing but blanks would be an empty frame."""
    return token if token.strip() else visible(token) or "(part of a character)"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
