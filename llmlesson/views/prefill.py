"""Prefill as pictures: K and V fill up, tokens look at each other, and the next token is chosen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from llmlesson.views.decode import Candidate, candidates
from llmlesson.views.markup import folded, isolated, label, note, quoted, svg, table, title
from llmlesson.views.style import css, paint, styled
from llmlesson.views.text import escape, visible

WINDOW = 40  # columns: a longer prompt is shown in part, which also bounds the size of the pictures
COLUMN, ROW, LEFT, HEAD = 22, 13, 84, 104  # width of a column, height of a layer, room for names and for tokens
CELL = 20  # of the heatmap
SHADES = (0.55, 0.66, 0.77, 0.88, 1.0)  # opacities of a cell that holds a vector: full is not the point, held is
LETTERS = 11  # of a token beside a picture


@dataclass(frozen=True)
class Columns:
    """The part of the prompt that is shown."""

    first: int  # position of the first column
    texts: Sequence[str]  # of the tokens, one a column
    read: int  # positions of the whole prompt that are in the cache

    @property
    def filled(self) -> int:
        """How many of the columns are in the cache."""
        return min(max(self.read - self.first, 0), len(self.texts))

    def name(self, position: int) -> str:
        return f"{position} {isolated(self.texts[position - self.first], LETTERS)}"


@dataclass(frozen=True)
class Comparison:
    """A cache built in chunks compared with one built in one pass. Both hold the same positions."""

    positions: int
    passes: int
    difference: float  # the largest between two values of K or V
    largest: float  # the largest value of K or V
    difference_in_probability: float  # the largest, of any next token
    same_token: bool

    @property
    def in_words(self) -> str:
        token = "the same next token" if self.same_token else "another next token"
        return f"largest difference in K and V {self.difference:.2g} (values up to {self.largest:.3g}), {token}"


def cache_grid(
    columns: Columns,
    keys: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    passes: Sequence[tuple[int, int]],
    layer: int,
    bytes_per_token: int,
) -> str:
    """Tokens as columns, layers as rows; in each cell K above V, the stronger in colour the longer the vector.

    keys, values: by layer and filled column, the vector's length, from 0 for the layer's shortest to 1 for its longest.
    passes: (start, stop) positions of each forward pass so far; the last is marked. layer: marked with an arrow.
    """
    count = len(columns.texts)
    width, height = LEFT + count * COLUMN + 12, HEAD + len(keys) * ROW + 8
    parts = [_token(LEFT + (i + 0.6) * COLUMN, HEAD - 26, text) for i, text in enumerate(columns.texts)]
    parts += _passes(columns, passes, height)
    every = 1 if len(keys) <= 40 else 5
    for row in range(len(keys)):
        if row % every == 0 or row == layer:
            name = f"{'▶ ' if row == layer else ''}layer {row}"
            parts.append(label(LEFT - 8, HEAD + row * ROW + 10, name, 11, "end", bold=row == layer))
    parts += _cells(keys, "key", 0) + _cells(values, "value", ROW / 2)
    empty = "".join(
        f"M{LEFT + i * COLUMN + 2} {HEAD + row * ROW + 1}h{COLUMN - 4}v{ROW - 3}h{4 - COLUMN}z"
        for row in range(len(keys))
        for i in range(columns.filled, count)
    )
    if empty:
        parts.append(f'<path d="{empty}" {paint(stroke="wait", dash="1 2", opacity=0.7)}/>')
    for i in range(count):
        there = i < columns.filled
        says = f"K and V in {len(keys)} layers, {bytes_per_token:,} bytes" if there else "not read yet"
        parts.append(
            f'<rect x="{LEFT + i * COLUMN}" y="{HEAD}" width="{COLUMN}" height="{len(keys) * ROW}" fill="none" '
            f'pointer-events="all"><title>position {escape(columns.name(columns.first + i))}: {says}</title></rect>'
        )
    spoken = (
        f"KV cache: {columns.read} positions in {len(keys)} layers. Shown are positions {columns.first} to "
        f"{columns.first + count - 1}, of which {columns.filled} are filled."
    )
    legend = note(
        "Each cell: K above V; the shortest vector of a layer is palest, the longest strongest. A dotted frame is not "
        "read yet. Numbers above the columns: the forward pass that read them; the last one is framed."
    )
    return svg(width, height, spoken, parts) + legend


def _passes(columns: Columns, passes: Sequence[tuple[int, int]], height: float) -> list[str]:
    """A bracket above the columns of each pass, with its number; a frame around those of the last."""
    parts = []
    for number, (start, stop) in enumerate(passes, start=1):
        begin, end = max(start - columns.first, 0), min(stop - columns.first, len(columns.texts))
        if begin >= end:
            continue
        x, wide, last = LEFT + begin * COLUMN, (end - begin) * COLUMN, number == len(passes)
        parts.append(
            f'<path d="M{x + 2} {HEAD - 4}v-5h{wide - 4}v5" {paint(stroke="prompt", width=2 if last else 1)}/>'
        )
        parts.append(label(x + wide / 2, HEAD - 13, number, 11, "middle", bold=last))
        if last:
            parts.append(
                f'<rect x="{x}" y="{HEAD - 2}" width="{wide}" height="{height - HEAD - 3}" '
                f"{paint(stroke='prompt', width=2)}/>"
            )
    return parts


def _cells(lengths: Sequence[Sequence[float]], name: str, down: float) -> list[str]:
    """All cells of one shade as one path of thick, short lines: a tenth of the bytes of one rectangle each."""
    shapes: dict[float, list[str]] = defaultdict(list)
    for row, columns in enumerate(lengths):
        middle = HEAD + row * ROW + down + ROW / 4
        for i, share in enumerate(columns):
            shade = SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)]
            shapes[shade].append(f"M{LEFT + i * COLUMN + 1} {middle:g}h{COLUMN - 2}")
    wide = ROW / 2 - 0.5
    return [
        f'<path d="{"".join(d)}" {paint(stroke=name, width=wide, opacity=shade)}/>'
        for shade, d in sorted(shapes.items())
    ]


def attention_map(columns: Columns, weights: Sequence[Sequence[float]], layer: int, head: int, kv_head: int) -> str:
    """How much each token looks at itself and those before it, in one head: a heatmap with the weights on hover.

    weights: one row per filled column, each over all positions from 0 on. Positions before the first column share one
    extra column.
    """
    heading = title(f"Attention, layer {layer}, head {head} (it reads KV head {kv_head})")
    count = columns.filled
    if not count:
        return heading + note("Nothing to see yet: no position in this window is read.")
    earlier = columns.first > 0
    left = LEFT + 20 + (CELL + 8 if earlier else 0)
    width, height = left + count * CELL + 12, HEAD + count * CELL + 8
    parts = [_token(left + (i + 0.6) * CELL, HEAD - 6, columns.texts[i]) for i in range(count)]
    if earlier:
        parts.append(_token(LEFT + 20 + 0.6 * CELL, HEAD - 6, f"0–{columns.first - 1}"))
    cells = []
    for i in range(count):
        looks = columns.first + i
        y = HEAD + i * CELL
        parts.append(label(LEFT + 12, y + 14, visible(columns.texts[i], LETTERS), 11, "end", mono=True))
        if earlier:
            says = f"{columns.name(looks)} → positions 0–{columns.first - 1} together"
            cells.append(_weight(LEFT + 20, y, sum(weights[i][: columns.first]), says))
        for j in range(i + 1):
            weight = weights[i][columns.first + j]
            says = f"{columns.name(looks)} → {columns.name(columns.first + j)}"
            cells.append(_weight(left + j * CELL, y, weight, says))
    # One thick, short line per cell: there are up to 820, so every byte counts.
    parts.append(f"<g {paint(stroke='query', width=CELL)}>{''.join(cells)}</g>")
    parts.append(_stairs(left, count))
    spoken = f"Attention of layer {layer}, head {head}, over {count} tokens. The strongest weights stand in the table."
    legend = note(
        "A row is a token, the columns are what it looks at; a row adds up to 1. Above the diagonal there is nothing: "
        "no token sees what comes after it. Point at a cell for its weight; the table has the strongest."
    )
    return heading + svg(width, height, spoken, parts) + _scale() + legend + _strongest(columns, weights)


def _weight(x: float, y: float, weight: float, says: str) -> str:
    return (
        f"<path d='M{x} {y + CELL // 2}h{CELL}' opacity='{sqrt(weight):.2g}'>"
        f"<title>{escape(says)}: {weight:.3f}</title></path>"
    )


def _stairs(left: int, count: int) -> str:
    """Lines between the cells of a triangle."""
    rows = "".join(f"M{left} {HEAD + i * CELL}h{min(i + 1, count) * CELL}" for i in range(count + 1))
    columns = "".join(
        f"M{left + j * CELL} {HEAD + max(j - 1, 0) * CELL}v{(count - max(j - 1, 0)) * CELL}" for j in range(count + 1)
    )
    return f'<path d="{rows}{columns}" {paint(stroke="line", width=0.7)} pointer-events="none"/>'


def _scale() -> str:
    """The key to the heatmap's colours: they grow with the square root, so that small weights are visible."""
    cells = "".join(
        f'<span style="display:inline-block;width:14px;height:14px;{css("border", "line", "1px solid")}'
        'vertical-align:middle;margin:0 .3em 0 1em"><span style="display:block;height:100%;'
        f'{css("background", "query")}opacity:{sqrt(w):.2f}"></span></span>{w:g}'
        for w in (0, 0.01, 0.1, 0.25, 0.5, 1)
    )
    return styled(f'<p style="margin:.2em 0;line-height:1.4">weight:{cells}</p>')


def _strongest(columns: Columns, weights: Sequence[Sequence[float]], most: int = 3) -> str:
    """The largest weights of each row, to read; as a table without any style in its cells, for the sake of its size."""
    rows = []
    for i in range(columns.filled):
        row = weights[i]
        best = sorted(range(len(row)), key=lambda j, row=row: -row[j])[:most]  # type: ignore[misc]
        cells = [f"{columns.name(j) if j >= columns.first else j}: {row[j]:.3f}" for j in best]
        name = escape(columns.name(columns.first + i))
        rows.append(f'<tr><th scope="row">{name}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("token", *(f"strongest {n + 1}" for n in range(most))))
    style = "border-spacing:1.2em .1em;color:inherit;background:transparent;text-align:left;font-weight:400"
    return folded("The strongest weights as a table", f'<table style="{style}"><tr>{head}</tr>{"".join(rows)}</table>')


def next_tokens(rows: Sequence[Candidate], position: int, text: str, whole: bool) -> str:
    """The likeliest next tokens after one position, as bars. HTML.

    whole: whether that position ends the prompt; otherwise a server would not look at this.
    """
    why = (
        "The last position of the prompt: one of these is the first token of the answer."
        if whole
        else "The prompt goes on, so nobody looks at these: the next token is known already."
    )
    return candidates(rows, heading=f"What may come after position {position} {quoted(text)}") + note(why)


def comparison_table(comparison: Comparison) -> str:
    """How far apart the same cache is when built in chunks and in one pass."""
    c = comparison
    rows = [
        ("positions compared, in all layers", f"{c.positions:,}"),
        ("forward passes", f"{c.passes} instead of 1"),
        ("largest difference between two values of K or V", f"{c.difference:.2g}"),
        ("largest value of K or V, to compare", f"{c.largest:.4g}"),
        ("largest difference in a next token’s probability", f"{c.difference_in_probability:.2g}"),
        ("the same next token", "yes" if c.same_token else "no"),
    ]
    heading = title("The same cache as in one pass?")
    why = note(
        "The sums are the same, but products of other shapes add up in another order, and floating-point numbers round "
        "on the way: so the caches may differ in their last digits."
    )
    return heading + table(("", "in chunks, against one pass"), rows) + why


def _token(x: float, y: float, text: str) -> str:
    return label(x, y, visible(text, LETTERS), 11, mono=True, turn=-60)
