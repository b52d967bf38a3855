"""One decode step: the text so far, the candidates, what was computed and reused, the cache, the branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmlesson.views.markup import Html, band, code, key_over_value, label, note, svg, table, title
from llmlesson.views.style import css, paint, styled
from llmlesson.views.text import escape, visible

MOST_COLUMNS = 48  # of the cache, that are drawn
COLUMN, TOP, CACHE_HEIGHT = 18, 88, 46  # pixels; the tokens are above the columns
LETTERS = 11  # of a token above its column
BAR = 90
WRAP = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;line-height:1.4"


class Candidate(NamedTuple):
    """A token that could come next."""

    token_id: int
    text: str
    before: float  # its probability in the model's own distribution
    after: float | None = None  # after temperature, top-k and top-p; 0 if they rule it out, None if not shown
    taken: bool = False


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
    least_seconds: float | None  # what the measured limits of this machine allow; None if they are not known


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
    chip = css("background", "answer-tint") + css("border", "answer", "2px solid")
    mark = f"{chip}border-radius:5px;padding:0 2px;{WRAP}"
    return styled(
        title("Prompt")
        + _scroller("Prompt", escape(prompt), 80)
        + title("Answer so far, the new token framed")
        + _scroller("Answer", f'{escape(before)}<mark style="color:inherit;{mark}">{escape(_spelled(new))}</mark>', 180)
        + (title(f"■ Ended: {ended}.") if ended else "")
        + ("" if ended else note("The new token is chosen, but not yet read: its K and V come with the next step."))
    )


def candidates(rows: Sequence[Candidate], after: str = "", heading: str = "Candidates for the new token") -> str:
    """The likeliest tokens as bars, the taken one filled; HTML.

    after: sampling's settings in words, where the candidates have probabilities before and after them.
    """
    head = ["", "token", "id", "as the model gives them" if after else "probability"]
    cells = [
        [
            "▶ taken" if row.taken else number,
            code(row.text),
            row.token_id,
            _bar(row.before, row.taken),
            *([_bar(row.after, row.taken) if row.after else "ruled out"] if after else []),
        ]
        for number, row in enumerate(rows, start=1)
    ]
    taken = next((index for index, row in enumerate(rows) if row.taken), None)
    shown = table([*head, f"after {after}"] if after else head, cells, bold=taken, left=True)
    return title(heading) + styled(shown)


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


def cache_columns(
    last: Sequence[str], length: int, prompt: int, new: int, waiting: str | None, column_nbytes: int
) -> str:
    """The cache as a column for each position, K above V, the newest framed; SVG with a line above. HTML.

    last: texts of the tokens at its end, at most 48 of which are drawn. length: positions in all, of which the first
    `prompt` are the prompt's and the last `new` came with this step. waiting: the token that the next step reads; None
    where there is no next step. column_nbytes: of one position over all layers.
    """
    drawn = last[-MOST_COLUMNS:]
    first = length - len(drawn)
    end = len(drawn) * COLUMN
    parts = [
        _column(place, index, text, index >= length - new, column_nbytes)
        for place, (index, text) in enumerate(zip(range(first, length), drawn, strict=True))
    ]
    begin = max(length - new - first, 0) * COLUMN  # of what is new
    frame = paint(stroke="prompt" if length == prompt else "answer", width=2)
    parts.append(f'<rect x="{begin}" y="{TOP - 2}" width="{end - begin}" height="{CACHE_HEIGHT + 4}" {frame}/>')
    if waiting is not None:
        says = f"waiting: {escape(visible(waiting))}, not yet in the cache"
        parts.append(
            f'<g><title>{says}</title><rect x="{end + 3}" y="{TOP}" width="{COLUMN - 4}" height="{CACHE_HEIGHT}" '
            f"{paint(stroke='wait', width=1.5, dash='2 3')}/></g>" + _above(len(drawn), waiting)
        )
    split = min(max(prompt - first, 0), len(drawn)) * COLUMN
    below = TOP + CACHE_HEIGHT + 22
    for start, stop, name, says in ((0, split, "prompt", "prompt"), (split, end, "answer", "answer")):
        if start < stop:
            parts += [
                band(start + 1, below, stop - start - 3, 3, name),
                label(start + 1, below + 17, says, 12, bold=True),
            ]
    waits = "" if waiting is None else " The dotted column waits for the next step."
    spoken = (
        f"KV cache: {length} positions, {prompt} of the prompt and {length - prompt} of the answer; "
        f"the last {new} came with this step.{waits}"
    )
    hidden = f" The first {first:,} positions are not drawn." if first else ""
    framed = "Framed: new in this step." if new else ""
    return (
        title(f"KV cache: {length:,} positions × {column_nbytes:,} bytes = {length * column_nbytes:,} bytes")
        + svg(max(end, 40) + COLUMN + 30, below + 22, spoken, parts, shrink=1)
        + note(f"A column is K over V of one token, in all layers. {framed}{waits}{hidden}")
    )


def branches(rows: Sequence[BranchRow]) -> str:
    """The answers side by side, each from the token where it leaves another; HTML. Empty for a single one."""
    if len(rows) < 2:
        return ""
    cells = [(f"{'▶ ' if row.current else ''}{row.name}", row.tokens, Html(_branch_text(row))) for row in rows]
    current = next((index for index, row in enumerate(rows) if row.current), None)
    return title("Branches: ┊ is where one leaves another, ▶ the current one") + styled(
        table(("branch", "tokens", "text"), cells, bold=current, left=True)
    )


def _branch_text(row: BranchRow) -> str:
    """What is shared, shortened from its beginning, and what is the branch's own."""
    shared = row.shared if len(row.shared) <= 60 else "…" + row.shared[-60:]
    own = row.own if len(row.own) <= 400 else row.own[:400] + "…"
    if row.forked_at is None:
        return f'<span style="{WRAP}">{escape(own)}</span>'
    style = f"{css('border-bottom', 'answer', '2px solid')}{WRAP}"
    return f'<span style="{WRAP}">{escape(shared)}</span>┊<span style="{style}">{escape(own)}</span>'


def _column(place: int, index: int, text: str, new: bool, nbytes: int) -> str:
    x = place * COLUMN
    number = label(x + COLUMN / 2, TOP + CACHE_HEIGHT + 14, index, 10, "middle") if index % 5 == 0 else ""
    return (
        f"<g><title>position {index}: {escape(visible(text))}, {nbytes:,} bytes</title>"
        f"{key_over_value(x + 2, TOP, COLUMN - 4, CACHE_HEIGHT, 1 if new else 0.7)}</g>{_above(place, text)}{number}"
    )


def _above(place: int, text: str) -> str:
    """The token above its column."""
    return label(place * COLUMN + COLUMN * 0.7, TOP - 7, visible(text, LETTERS), 11, mono=True, turn=-60)


def _bar(share: float, taken: bool) -> Html:
    look = css("background", "answer") if taken else css("border", "answer", "1px solid")
    bar = f"display:inline-block;box-sizing:border-box;vertical-align:middle;width:{round(share * BAR)}px;height:11px"
    number = f"{100 * share:.1f} %" if share >= 0.001 else "&lt;0.1 %"
    return Html(
        f'<span style="display:inline-block;width:{BAR + 4}px;text-align:left">'
        f'<span style="{bar};{look}"></span></span>'
        f"{number}"
    )


def _scroller(label: str, html: str, height: int) -> str:
    style = f"max-height:{height}px;overflow:auto;padding:3px 8px;{css('border', 'wait', '1px solid')}{WRAP}"
    return f'<div tabindex="0" role="region" aria-label="{label}" dir="auto" style="{style}">{html}</div>'


def _spelled(token: str) -> str:
    """The new token; a token of only blanks would be an empty frame."""
    return token if token.strip() else visible(token) or "(part of a character)"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
