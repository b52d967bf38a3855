"""One decode step: the text so far, the candidates, what was computed and reused, the cache, the branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmlesson.views.request import BLUE, GREEN, ORANGE
from llmlesson.views.text import escape, visible

MOST_COLUMNS = 48  # of the cache, that are drawn
COLUMN, CACHE_HEIGHT = 18, 46  # pixels
LETTERS = 15 + CACHE_HEIGHT / 2 + 4
MIDDLE = 'text-anchor="middle" fill="currentColor"'
BAR = 150
WRAP = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate"


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
    mark = f"background:{ORANGE}40;border:2px solid {ORANGE};border-radius:3px;padding:0 2px;{WRAP}"
    end = f"<p><strong>■ Ended</strong>: {escape(ended)}.</p>" if ended else ""
    return (
        f"<p style='margin:.2em 0'><strong>Prompt</strong></p>{_scroller('Prompt', escape(prompt), 90)}"
        "<p style='margin:.4em 0 .2em'><strong>Answer so far</strong>, the new token framed. It is chosen, but not yet "
        "read: its K and V come with the next step.</p>"
        + _scroller("Answer", f'{escape(before)}<mark style="color:inherit;{mark}">{escape(_spelled(new))}</mark>', 200)
        + end
    )


def candidates(rows: Sequence[Candidate], after: str) -> str:
    """The likeliest tokens as bars, before and after sampling's settings; HTML. after: those settings in words."""
    heads = ("", "token", "id", "as the model gives them", f"after {after}")
    head = "".join(f'<th scope="col" style="text-align:left">{escape(text)}</th>' for text in heads)
    body = "".join(
        f"<tr{_if(row.taken, ' style=font-weight:600')}><td>{'▶ taken' if row.taken else number}</td>"
        f"<td><bdi><code>{escape(visible(row.text))}</code></bdi></td><td>{row.token_id}</td>"
        f"<td>{_bar(row.before, BLUE)}</td><td>{_bar(row.after, GREEN) if row.after else 'ruled out'}</td></tr>"
        for number, row in enumerate(rows, start=1)
    )
    return f"<table><caption>Candidates for the new token</caption><tr>{head}</tr>{body}</table>"


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
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{name}</th><td>{value}</td><td>{without}</td></tr>'
        for name, value, without in rows
    )
    heads = f'<td></td><th scope="col">{escape(w.name)}</th><th scope="col">without a cache</th>'
    return f"<table><caption>What it took</caption><tr>{heads}</tr>{body}</table>"


def cache_columns(last: Sequence[str], length: int, prompt: int, new: int, waiting: str, column_nbytes: int) -> str:
    """The cache as a column for each position, the newest framed; SVG with a line above. HTML.

    last: texts of the tokens at its end, at most 48 of which are drawn. length: positions in all, of which the first
    `prompt` are the prompt's and the last `new` came with this step. waiting: the token that comes next.
    column_nbytes: of one position over all layers.
    """
    drawn = last[-MOST_COLUMNS:]
    first = length - len(drawn)
    parts = [
        _column(place, index, text, BLUE if index < prompt else GREEN, index >= length - new, column_nbytes)
        for place, (index, text) in enumerate(zip(range(first, length), drawn, strict=True))
    ]
    end = len(drawn) * COLUMN + 1
    parts.append(
        f"<g><title>waiting: {escape(visible(waiting))}, not yet in the cache</title>"
        f'<rect x="{end}" y="15" width="{COLUMN - 3}" height="{CACHE_HEIGHT}" fill="none" stroke="currentColor" '
        f'stroke-dasharray="3 3"/><text x="{end + 7}" y="{LETTERS}" font-size="12" {MIDDLE}>?</text></g>'
    )
    width, height = end + COLUMN + 4, 15 + CACHE_HEIGHT + 18
    spoken = (
        f"KV cache: {length} positions, {prompt} of the prompt and {length - prompt} of the answer; "
        f"the last {new} came with this step"
    )
    hidden = f" The first {first:,} positions are not drawn." if first else ""
    return (
        f"<p style='margin:.4em 0 .2em'><strong>KV cache</strong>: {length:,} positions × {column_nbytes:,} bytes "
        f"= {length * column_nbytes:,} bytes. P prompt, A answer, ★ new in this step, ? waiting.{hidden}</p>"
        f'<div style="overflow-x:auto" tabindex="0" role="region" aria-label="KV cache">'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" '
        f'aria-label="{spoken}" font-family="var(--jp-ui-font-family, sans-serif)">{"".join(parts)}</svg></div>'
    )


def branches(rows: Sequence[BranchRow]) -> str:
    """The answers beside each other, each from where it leaves another; HTML. Empty for a single one."""
    if len(rows) < 2:
        return ""
    head = "".join(f'<th scope="col" style="text-align:left">{h}</th>' for h in ("branch", "tokens", "text"))
    body = "".join(
        f'<tr{_if(row.current, " style=font-weight:600")}><th scope="row">{_if(row.current, "▶ ")}{escape(row.name)}'
        f'</th><td>{row.tokens}</td><td style="text-align:left;white-space:normal">{_branch_text(row)}</td></tr>'
        for row in rows
    )
    return f"<table><caption>Branches: ┊ marks where one leaves another</caption><tr>{head}</tr>{body}</table>"


def _branch_text(row: BranchRow) -> str:
    """What is shared, shortened from its beginning, and what is the branch's own."""
    shared = row.shared if len(row.shared) <= 60 else "…" + row.shared[-60:]
    own = row.own if len(row.own) <= 400 else row.own[:400] + "…"
    if row.forked_at is None:
        return f'<span style="{WRAP}">{escape(own)}</span>'
    style = f"border-bottom:2px solid {ORANGE};{WRAP}"
    return f'<span style="{WRAP}">{escape(shared)}</span>┊<span style="{style}">{escape(own)}</span>'


def _column(place: int, index: int, text: str, colour: str, new: bool, nbytes: int) -> str:
    x, middle = place * COLUMN + 1, place * COLUMN + 8.5
    frame = f'stroke="{ORANGE}" stroke-width="3"' if new else f'stroke="{colour}"'
    number = ""
    if index % 5 == 0:
        number = f'<text x="{middle}" y="{15 + CACHE_HEIGHT + 14}" font-size="10" {MIDDLE}>{index}</text>'
    star = f'<text x="{middle}" y="11" font-size="11" {MIDDLE}>★</text>' if new else ""
    letter = "P" if colour == BLUE else "A"
    return (
        f"<g><title>position {index}: {escape(visible(text))}, {nbytes:,} bytes</title>"
        f'<rect x="{x}" y="15" width="{COLUMN - 3}" height="{CACHE_HEIGHT}" fill="{colour}" '
        f'fill-opacity="{".6" if new else ".3"}" {frame}/>'
        f'<text x="{middle}" y="{LETTERS}" font-size="10" {MIDDLE}>{letter}</text>{star}{number}</g>'
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


def _if(condition: bool, text: str) -> str:
    return text if condition else ""


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
