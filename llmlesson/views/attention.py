"""One token's way through one head of attention: ask, compare, share, take, add. And positions as hands of clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmlesson.views.markup import label, note, quoted, svg, table, title
from llmlesson.views.style import paint
from llmlesson.views.text import escape, visible

LANE, TOP, WIDTH = 16.5, 54, 1000
NAME, RAIL, KEY, SCORE, SHARE, VALUE, JOIN, END = 112, 150, 190, 214, 394, 620, 808, 990  # where the columns begin
SCORE_WIDE, SHARE_WIDE = 130, 150
LETTERS = 13  # of a token at its lane
PHASES = (
    "comes in",
    "It asks: its query goes to the key of every token up to itself.",
    "Each key answers with a score: the products of their numbers, added up, over the root of how many there are.",
    "The mask: what comes later is not there to look at.",
    "Softmax makes shares of the scores; together they are 100 %.",
    "It takes a share of each value. A square is as tall as its value is long; the needle beside it shows the value's "
    "direction, to the right being where the whole sum points.",
    "",
)
LAST = len(PHASES) - 1


@dataclass(frozen=True)
class Look:
    """What one head does for one token. Lists have an entry for each token up to that one, itself included."""

    texts: Sequence[str]  # of all tokens, including later ones
    token: int
    layer: int
    head: int
    kv_head: int
    scores: Sequence[float]  # q · k / √D
    shares: Sequence[float]  # their softmax
    lengths: Sequence[float]  # of the values
    cosines: Sequence[float]  # between each value and the sum that the head takes
    stream: Stream


@dataclass(frozen=True)
class Stream:
    """The token's vector on its way through the layer: lengths, and angles to what came in, in degrees."""

    came_in: float
    heads_add: float  # all heads together
    heads_angle: float
    mlp_adds: float
    mlp_angle: float
    goes_on: float
    goes_angle: float


def attention_picture(look: Look, phase: int = LAST) -> str:
    """All tokens as lanes, from the query of one to what is added to its stream. HTML.

    phase: 0 to 6, how many of the columns are drawn in full; later ones are left out.
    """
    own = _lane(look.token)
    parts = [*_lanes(look), *_stream(own)]
    for number, draw in enumerate((_ask, _compare, _mask, _share, _take, _add), start=1):
        if phase >= number:
            parts += draw(look)
    height = TOP + len(look.texts) * LANE + (92 if phase == LAST else 8)
    return svg(WIDTH, height, in_words(look, phase), parts, shrink=0.62)


def in_words(look: Look, phase: int = LAST) -> str:
    """What this state shows, in a sentence or two."""
    who = quoted(look.texts[look.token])
    if phase == 0:
        return f"{who} comes in."
    if phase < LAST:
        return f"{phase} of {LAST} · {PHASES[phase]}"
    order = sorted(range(len(look.shares)), key=lambda i: -look.shares[i])
    told = ", ".join(
        f"{_percent(look.shares[i])} to {quoted(look.texts[i])}" for i in order[:4] if look.shares[i] >= 0.0495
    )
    taken = _taken(look)
    most = max(range(len(taken)), key=lambda i: taken[i])
    says = f"In layer {look.layer}, head {look.head} of {who} gives {told or 'each token a little'}."
    says += f" The largest part of what it takes comes from {quoted(look.texts[most])}."
    if most != order[0] and taken[order[0]] < look.shares[order[0]] / 2:
        short = look.lengths[order[0]] < max(look.lengths) / 2
        why = "its value is short" if short else "its value points elsewhere"
        says += f" Of {quoted(look.texts[order[0]])} little arrives, because {why}."
    return says


def attention_table(look: Look) -> str:
    """The numbers of the picture, for the tokens with the largest shares. HTML."""
    order = sorted(range(len(look.shares)), key=lambda i: -look.shares[i])[:8]
    rows = [
        (
            f"{i} {visible(look.texts[i])}",
            _number(look.scores[i]),
            f"{look.shares[i]:.1%}",
            f"{look.lengths[i]:.2f}",
            f"{_angle(look.cosines[i]):.0f}°",
            f"{_taken(look)[i]:.1%}",
        )
        for i in sorted(order)
    ]
    head = ("token", "score", "share", "length of its value", "angle to the sum", "part of the sum")
    return table(head, rows)


def head_map(others: Sequence[Sequence[float]], layer: int, head: int) -> str:
    """Layers across, heads down: strongly coloured if the head looks at other words. HTML.

    others: by layer and head, the share that goes neither to the first token nor to the token itself. The chosen head
    has a frame.
    """
    wide, tall = (END - NAME) / len(others), 12
    heads = len(others[0])
    parts = []
    for x, row in enumerate(others):
        for y, share in enumerate(row):
            says = f"layer {x}, head {y}: {share:.0%} to other words"
            parts.append(
                f'<rect x="{NAME + x * wide + 0.5:.1f}" y="{y * tall + 0.5}" width="{wide - 1:.1f}" '
                f'height="{tall - 1}" {paint("query", opacity=0.06 + 0.94 * share**1.5)}><title>{says}</title></rect>'
            )
    parts.append(
        f'<rect x="{NAME + layer * wide:.1f}" y="{head * tall}" width="{wide:.1f}" height="{tall}" '
        f"{paint(stroke='ink', width=2.5)}/>"
    )
    parts += [
        label(NAME - 8, head * tall + 10, f"head {head}", 12, "end", bold=True),
        label(min(NAME + layer * wide, END - 50), heads * tall + 14, f"layer {layer}", 12, bold=True),
    ]
    spoken = f"Map of {len(others)} layers and {heads} heads; layer {layer}, head {head} is chosen."
    legend = note(
        "All layers, from left to right, and their heads: the stronger the colour, the more of its attention goes to "
        "other words rather than to the first token or to the token itself."
    )
    return svg(WIDTH, heads * tall + 20, spoken, parts, shrink=0.62) + legend


def rope_clocks(query: int, key: int, speeds: Sequence[float], pairs: Sequence[int]) -> str:
    """Where RoPE turns a query and a key that would point up at position 0: a clock for each of these pairs. HTML.

    query, key: two positions. speeds: radians a position, of all pairs. pairs: the indices to show.
    """
    size, gap = 92, 14
    parts = []
    for place, pair in enumerate(pairs):
        x, y, r = place * (size + gap) + size / 2 + 4, size / 2 + 24, size / 2 - 4
        parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="{r}" {paint(stroke="line", width=1.5)}/>')
        for position, name, letter, long in ((key, "key", "K", 0.78), (query, "query", "Q", 1.0)):
            angle = position * speeds[pair]
            tip_x, tip_y = x + r * long * math.sin(angle), y - r * long * math.cos(angle)
            parts.append(f'<path d="M{x:.1f} {y}L{tip_x:.1f} {tip_y:.1f}" {paint(stroke=name, width=2.5)}/>')
            parts.append(f'<circle cx="{tip_x:.1f}" cy="{tip_y:.1f}" r="7.5" {paint(name)}/>')
            parts.append(label(tip_x, tip_y + 3.5, letter, 10, "middle", bold=True, colour="paper"))
        apart = math.degrees((query - key) * speeds[pair])
        parts.append(label(x, 14, f"pair {pair}", 12, "middle", bold=True))
        parts.append(label(x, y + r + 18, f"{_round(apart)} apart", 12, "middle"))
    width = len(pairs) * (size + gap) + 8
    spoken = f"Clocks of {len(pairs)} pairs: a query at position {query} and a key at position {key}, turned by RoPE."
    legend = note(
        f"The query at position {query} and the key at position {key}, each turned by position × its speed. The "
        f"angle between the two hands is {abs(query - key)} × speed. It depends on how far apart the two are, not on "
        "where they are."
    )
    return title("RoPE: positions as hands of clocks") + svg(width, size + 48, spoken, parts, shrink=0.8) + legend


def _lane(token: int) -> float:
    return TOP + token * LANE + LANE / 2


def _taken(look: Look) -> list[float]:
    """Which part of the head's sum comes from each token: share × length × cosine, of the whole."""
    parts = [s * n * c for s, n, c in zip(look.shares, look.lengths, look.cosines, strict=True)]
    whole = sum(parts) or 1.0
    return [part / whole for part in parts]


def _heading(x: float, name: str, what: str) -> list[str]:
    return [label(x, 20, name, 13, bold=True), label(x, 36, what, 12, colour="ink-2")]


def _lanes(look: Look) -> list[str]:
    parts = []
    for i, text in enumerate(look.texts):
        y = _lane(i)
        if i == look.token:
            parts.append(
                f'<rect x="1" y="{y - LANE / 2 + 0.5:.1f}" width="{NAME + 4}" height="{LANE - 1}" rx="5" '
                f"{paint('query-tint', 'query')}/>"
            )
        else:
            parts.append(f'<path d="M{NAME + 6} {y:.1f}H{END}" {paint(stroke="line")}/>')
        shown = label(NAME - 2, y + 4, visible(text, LETTERS), 12, "end", i == look.token, mono=True)
        parts.append(f'<g opacity="0.62">{shown}</g>' if i > look.token else shown)
        later = i > look.token
        box = paint(stroke="wait", dash="2 2") if later else paint("key")
        parts.append(f'<rect x="{KEY - 5}" y="{y - 5:.1f}" width="10" height="10" {box}/>')
        if not later:
            parts.append(label(KEY, y + 3.4, "K", 9, "middle", bold=True, colour="paper"))
    return parts


def _stream(own: float) -> list[str]:
    road = own + LANE / 2 - 0.5
    return [
        f'<path d="M{NAME + 6} {own:.1f}Q{RAIL} {own:.1f} {RAIL} {(own + road) / 2:.1f}T{KEY - 4} {road:.1f}'
        f'H{END - 4}m-7 -5l8 5 -8 5" {paint(stroke="ink", width=2.5)}/>'
    ]


def _ask(look: Look) -> list[str]:
    own = _lane(look.token)
    asks = "".join(f"M{RAIL} {_lane(i):.1f}H{KEY - 5}" for i in range(look.token + 1))
    return [
        *_heading(RAIL - 8, "ask", "Q meets K"),
        f'<path d="M{NAME + 6} {own:.1f}H{RAIL}V{_lane(0):.1f}" {paint(stroke="query", width=2)}/>',
        f'<path d="{asks}" {paint(stroke="query")}/>',
        f'<path d="M{RAIL - 10} {own:.1f}l10 -10 10 10 -10 10z" {paint("query")}/>',
        label(RAIL, own + 3.5, "Q", 10, "middle", bold=True, colour="paper"),
    ]


def _compare(look: Look) -> list[str]:
    low, high = min(0.0, *look.scores), max(0.0, *look.scores)
    unit = SCORE_WIDE / ((high - low) or 1)
    zero = SCORE - low * unit
    parts = [
        *_heading(SCORE, "compare", "score = q · k / √D"),
        f'<path d="M{zero:.1f} {_lane(0) - 8:.1f}V{_lane(look.token) + 8:.1f}" {paint(stroke="wait")}/>',
    ]
    for i, score in enumerate(look.scores):
        x = min(zero, zero + score * unit)
        parts.append(
            f'<rect x="{x:.1f}" y="{_lane(i) - 3:.1f}" width="{abs(score) * unit:.1f}" height="6" {paint("wait")}/>'
        )
        parts.append(label(SCORE + SCORE_WIDE + 40, _lane(i) + 4, _number(score), 11, "end", colour="ink-2"))
    return parts


def _mask(look: Look) -> list[str]:
    later = len(look.texts) - look.token - 1
    if not later:
        return []
    top = _lane(look.token + 1) - LANE / 2 + 4
    tall = later * LANE - 5
    middle = top + tall / 2 + 4
    return [
        f'<rect x="{SCORE - 6}" y="{top:.1f}" width="{VALUE - SCORE - 16}" height="{tall:.1f}" rx="4" '
        f"{paint('panel', 'wait', dash='4 3')}/>",
        label(SCORE + (VALUE - SCORE - 28) / 2, middle, "⊘ comes later: the mask hides it", 12, "middle"),
    ]


def _share(look: Look) -> list[str]:
    parts = _heading(SHARE, "share", "softmax: 100 % in all")
    for i, share in enumerate(look.shares):
        wide = max(share * SHARE_WIDE, 0.5)
        parts.append(f'<rect x="{SHARE}" y="{_lane(i) - 6:.1f}" width="{wide:.1f}" height="12" {paint("query")}/>')
        if says := _percent(share):
            parts.append(label(SHARE + wide + 4, _lane(i) + 4, says, 12, bold=share > 0.095))
    return parts


def _take(look: Look) -> list[str]:
    """Ribbons as thick as share × length of the value; a square for the length, a needle in it for the direction."""
    weights = [share * length for share, length in zip(look.shares, look.lengths, strict=True)]
    whole, longest = sum(weights) or 1.0, max(look.lengths) or 1.0
    band = _band(look)
    start = _lane(look.token) + LANE / 2 - 0.5 - band / 2
    parts = _heading(VALUE - 5, "take", "share × value")
    ribbons = []
    for i, weight in enumerate(weights):
        y, thick = _lane(i), weight / whole * band
        tall = max(2.0, look.lengths[i] / longest * 13)
        parts.append(
            f'<rect x="{VALUE - 5}" y="{y - tall / 2:.1f}" width="10" height="{tall:.1f}" {paint("value")}>'
            f"<title>value of {escape(visible(look.texts[i]))}: length {look.lengths[i]:.2f}, "
            f"{_angle(look.cosines[i]):.0f}° from the sum</title></rect>"
        )
        angle = math.acos(max(-1.0, min(1.0, look.cosines[i])))
        parts.append(
            f'<path d="M{VALUE + 12} {y:.1f}l{8 * math.cos(angle):.1f} {-8 * math.sin(angle):.1f}" '
            f"{paint(stroke='ink', width=1.5)}/>"
        )
        if thick > 0.15:
            x, bend = VALUE + 24, (JOIN + VALUE + 24) / 2
            up, down, top, end = y - thick / 2, y + thick / 2, start, start + thick
            ribbons.append(
                f"M{x} {up:.1f}C{bend} {up:.1f} {bend} {top:.1f} {JOIN} {top:.1f}V{end:.1f}"
                f"C{bend} {end:.1f} {bend} {down:.1f} {x} {down:.1f}z"
            )
        start += thick
    parts += [f'<path d="{ribbon}" {paint("value", opacity=0.55)}/>' for ribbon in ribbons]
    return parts


def _add(look: Look) -> list[str]:
    own, half = _lane(look.token), _band(look) / 2
    road, plus = own + LANE / 2 - 0.5, JOIN + 40
    s = look.stream
    foot = TOP + len(look.texts) * LANE + 22
    longest = max(s.came_in, s.heads_add, s.mlp_adds, s.goes_on) or 1.0
    unit = (END - SHARE) * 0.5 / longest
    parts = [
        *_heading(JOIN + 6, "add", "to its stream"),
        f'<path d="M{JOIN - 0.3} {road - half:.1f}C{JOIN + 16} {road - half:.1f} {plus - 18} {road - 4:.1f} {plus} '
        f"{road - 4:.1f}V{road + 4:.1f}C{plus - 18} {road + 4:.1f} {JOIN + 16} {road + half:.1f} {JOIN - 0.3} "
        f'{road + half:.1f}z" {paint("value", opacity=0.55)}/>',
        f'<path d="M{plus} {road + 3:.1f}H{END - 8}" {paint(stroke="value", width=2.5)}/>',
        f'<circle cx="{plus}" cy="{road:.1f}" r="9" {paint("paper", "ink", 2)}/>',
        f'<path d="M{plus - 5} {road:.1f}h10m-5 -5v10" {paint(stroke="ink", width=2)}/>',
        label(END, road - 9, f"{visible(look.texts[look.token], LETTERS)}, changed", 12, "end", bold=True, mono=True),
        label(0, foot + 4, "the stream of this token, as lengths of vectors", 12, colour="ink-2"),
    ]
    for row, (name, length, colour, angle) in enumerate(
        (
            ("came in", s.came_in, "ink", None),
            ("all heads add", s.heads_add, "value", s.heads_angle),
            ("MLP adds", s.mlp_adds, "wait", s.mlp_angle),
            ("goes on", s.goes_on, "ink", s.goes_angle),
        )
    ):
        y = foot + row * 17
        says = f"{length:.1f}" if length < 10 else f"{length:,.0f}"
        says += "" if angle is None else f", at {angle:.0f}° to what came in"
        parts += [
            label(SHARE - 8, y + 4, name, 12, "end"),
            f'<rect x="{SHARE}" y="{y - 5:.1f}" width="{length * unit:.1f}" height="10" {paint(colour)}/>',
            label(SHARE + length * unit + 5, y + 4, says, 12, colour="ink-2"),
        ]
    return parts


def _band(look: Look) -> float:
    return min(54.0, (look.token + 1) * LANE * 0.5 + 20)


def _angle(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def _percent(share: float) -> str:
    if share >= 0.0095:
        return f"{100 * share:.0f} %"
    return "<1 %" if share >= 0.001 else ""


def _number(value: float) -> str:
    shown = f"{value:.1f}"
    return "0.0" if shown == "-0.0" else shown.replace("-", "−")


def _round(degrees: float) -> str:
    """The angle between two hands without full turns: as on a clock, 350° and −10° look the same."""
    turned = (degrees + 180) % 360 - 180
    return f"{abs(turned):.0f}°" if abs(turned) >= 1 or not turned else "under 1°"
