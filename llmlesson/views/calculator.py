"""The size of one or two caches: a table, the arithmetic, and the curve over the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10

from llmlesson.sizing import KVCacheSize, Plan
from llmlesson.sizing.tables import kinds
from llmlesson.sizing.units import MAX_TOKENS, both_units
from llmlesson.views.markup import folded, label, note, svg, table, title
from llmlesson.views.style import css, paint, styled
from llmlesson.views.text import escape, visible

POWERS = range(7, 21)  # the curve: 128 … 1,048,576 tokens
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 320, 70, 230, 14, 44
Scale = Callable[[float], float]
DASHES = ("", "7 4")  # of the first and the second model: both are caches, so the colour is the same


@dataclass(frozen=True)
class Answer:
    """One model's cache, and what it leaves room for."""

    size: KVCacheSize
    curve: tuple[tuple[int, int], ...]  # (tokens, bytes of the whole batch)
    plan: Plan | None  # None: not known, for the reason in `problem`
    problem: str = ""

    @property
    def name(self) -> str:
        return self.size.name.rpartition("/")[2]


def headline(answers: Sequence[Answer]) -> str:
    """The result in a sentence or two, as text."""
    return " ".join(_sentence(answer) for answer in answers)


def _sentence(answer: Answer) -> str:
    size, plan = answer.size, answer.plan
    sequences = "" if size.batch == 1 else f" × {size.batch:,} sequences"
    said = f"{answer.name}, {size.tokens:,} tokens{sequences}, {size.dtype}: {size.nbytes:,} bytes"
    said += f" = {size.nbytes / 10**9:,.3f} GB = {size.nbytes / 2**30:,.3f} GiB."
    if plan is None:
        return said
    if plan.kv_budget_nbytes < 0:
        return f"{said} The weights alone don't fit on {plan.gpu.name}."
    fits = "fits" if size.batch <= plan.users else "does not fit"
    return f"{said} It {fits} on {plan.gpu.name} beside the weights."


def size_table(answers: Sequence[Answer]) -> str:
    """Everything that was asked, one column per model."""
    head = ("", *(answer.name for answer in answers))
    sizes = [answer.size for answer in answers]
    rows = [
        ("layers", *(kinds(size) for size in sizes)),
        ("a token of one sequence, bytes", *(f"{size.bytes_per_token:,}" for size in sizes)),
        ("fixed, whatever the context, bytes", *(f"{size.fixed_nbytes:,}" for size in sizes)),
        ("cache, bytes", *(f"{size.nbytes:,}" for size in sizes)),
        ("cache, GB (10⁹ bytes)", *(f"{size.nbytes / 10**9:,.3f}" for size in sizes)),
        ("cache, GiB (2³⁰ bytes)", *(f"{size.nbytes / 2**30:,.3f}" for size in sizes)),
    ]
    if any(size.marginal_bytes_per_token != size.bytes_per_token for size in sizes):
        rows.insert(
            2, ("a token once every window is full, bytes", *(f"{s.marginal_bytes_per_token:,}" for s in sizes))
        )
    if len(answers) == 2 and sizes[1].nbytes:
        rows.append(("compared", "", _compared(sizes[0].nbytes, sizes[1].nbytes)))
    return table(head, rows, bold=next(i for i, row in enumerate(rows) if row[0] == "cache, bytes"))


def _compared(first: int, second: int) -> str:
    if first == second:
        return "the same"
    return f"{second / first:,.2f} × as large" if second > first else f"{first / second:,.2f} × smaller"


def fit_table(answers: Sequence[Answer]) -> str:
    """What fits on the card, one column per model; notes below."""
    notes = [f"{answer.name}: {answer.problem}" for answer in answers if answer.problem]
    notes += list(dict.fromkeys(f"{a.name}: {text}" for a in answers if a.plan for text in a.plan.notes))
    plans = [(answer.name, answer.plan) for answer in answers if answer.plan is not None]
    shown = ""
    if plans:
        card = plans[0][1].gpu
        context = plans[0][1].context
        found = [plan for _, plan in plans]
        rows = [
            ("weights, bf16", *(both_units(plan.weights_nbytes) for plan in found)),
            ("kept free for activations", *(both_units(plan.reserve_nbytes) for plan in found)),
            ("left for the cache", *(_left(plan) for plan in found)),
            (f"users at once, {context:,} tokens each", *(f"{plan.users:,}" for plan in found)),
            ("longest context of one user, tokens", *(_longest(plan) for plan in found)),
            ("decode, one user, at most", *(_ceiling(plan, 1) for plan in found)),
            ("decode, all these users, at most", *(_ceiling(plan, plan.users) for plan in found)),
        ]
        caption = f"{card.name}: {both_units(card.memory_nbytes)}, reads {card.bandwidth / 10**9:,.0f} GB a second"
        shown = table(("", *(name for name, _ in plans)), rows, caption)
    return title("What fits") + shown + "".join(note(text) for text in notes)


def _left(plan: Plan) -> str:
    return both_units(plan.kv_budget_nbytes) if plan.kv_budget_nbytes >= 0 else "nothing: the weights don’t fit"


def _longest(plan: Plan) -> str:
    return "any" if plan.max_context >= MAX_TOKENS else f"{plan.max_context:,}"


def _ceiling(plan: Plan, users: int) -> str:
    if not plan.fits:
        return "–"
    return f"{plan.steps_per_second(users) * users:,.0f} tokens/s"


def arithmetic(answers: Sequence[Answer]) -> str:
    """Where every number comes from, side by side."""
    style = (
        "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;flex:1 1 26em;min-width:0;margin:0;"
        "padding:.5em .8em;color:inherit;font-size:12px;line-height:1.4;" + css("background", "panel")
    )
    parts = "".join(f'<pre style="{style}" tabindex="0">{escape(answer.size.explain())}</pre>' for answer in answers)
    return title("The arithmetic") + styled(f'<div style="display:flex;flex-wrap:wrap;gap:.6em">{parts}</div>')


def curves(answers: Sequence[Answer]) -> str:
    """Bytes against context, both axes logarithmic, with lines for the card's memory and what it leaves for a cache."""
    sizes = [nbytes for answer in answers for _, nbytes in answer.curve] + [a.size.nbytes for a in answers]
    budgets = [answer.plan.kv_budget_nbytes if answer.plan else 0 for answer in answers]
    card = next((answer.plan.gpu for answer in answers if answer.plan), None)
    levels = [value for value in (*sizes, *budgets, card.memory_nbytes if card else 0) if value > 0]
    bottom, top = floor(log10(min(levels))), ceil(log10(max(levels)) + 0.05)

    def x(tokens: float) -> float:
        share = (log2(tokens) - POWERS[0]) / (POWERS[-1] - POWERS[0])
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def y(nbytes: float) -> float:
        return TOP + (top - log10(nbytes)) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    parts = _axes(x, y, bottom, top)
    levels_named = [(card.memory_nbytes, f"memory of {card.name}", "wait", "2 3")] if card else []
    for answer, budget in zip(answers, budgets, strict=True):
        if budget > 0:
            levels_named.append((budget, f"left for {visible(answer.name, 24)}", "wait", "1 4"))
    parts += _levels(y, levels_named)
    for index, answer in enumerate(answers):
        parts += _curve(answer, x, y, index)
    parts += _asked(answers, x, y)
    spoken = "KV cache against context, both axes logarithmic. " + " ".join(
        f"{answer.name}: {both_units(answer.curve[0][1])} at {answer.curve[0][0]:,} tokens, "
        f"{both_units(answer.curve[-1][1])} at {answer.curve[-1][0]:,}."
        for answer in answers
    )
    return title("Over the context") + _legend(answers) + svg(WIDTH, HEIGHT, spoken, parts)


def _axes(x: Scale, y: Scale, bottom: int, top: int) -> list[str]:
    parts = []
    for power in range(bottom, top + 1):
        at = y(10**power)
        parts.append(f'<path d="M{LEFT} {at:.1f} H{WIDTH - RIGHT}" {paint(stroke="line")}/>')
        parts.append(label(LEFT - 8, at + 4, _decimal(power), 11, "end"))
    for power in POWERS:
        at = x(2**power)
        parts.append(f'<path d="M{at:.1f} {TOP} V{HEIGHT - BOTTOM}" {paint(stroke="line", width=0.5)}/>')
        name = f"{2**power >> 20}Mi" if power >= 20 else f"{2**power >> 10}Ki" if power >= 10 else f"{2**power}"
        parts.append(label(at, HEIGHT - BOTTOM + 16, name, 11, "middle"))
    parts.append(
        label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "context, tokens (Ki = 1,024; Mi = 1,024²)", 12, "middle")
    )
    return parts


def _decimal(power: int) -> str:
    """10^power bytes: "1 GB"."""
    unit = min(power // 3, 5)
    return f"{10 ** (power - 3 * unit):,} {('B', 'KB', 'MB', 'GB', 'TB', 'PB')[unit]}"


def _levels(y: Scale, levels: Sequence[tuple[int, str, str, str]]) -> list[str]:
    """Horizontal lines with their names at the right, which stay apart even if the lines are close.

    levels: (bytes, name, colour, dash) of each.
    """
    parts, lowest = [], 0.0
    for nbytes, name, colour, dash in sorted(levels, reverse=True):
        at = y(nbytes)
        lowest = max(at, lowest + 14)
        end = WIDTH - RIGHT
        parts.append(
            f'<path d="M{LEFT} {at:.1f}H{end}L{end + 14} {lowest:.1f}" {paint(stroke=colour, width=1.5, dash=dash)}/>'
        )
        parts.append(label(end + 18, lowest + 4, name, 11))
    return parts


def _curve(answer: Answer, x: Scale, y: Scale, index: int) -> list[str]:
    points = [(x(tokens), y(nbytes), tokens, nbytes) for tokens, nbytes in answer.curve if nbytes]
    line = " ".join(f"{'L' if i else 'M'}{px:.1f} {py:.1f}" for i, (px, py, *_) in enumerate(points))
    parts = [f'<path d="{line}" {paint(stroke="cache", width=2, dash=DASHES[index])}/>']
    for px, py, tokens, nbytes in points:
        says = escape(f"{answer.name}, {tokens:,} tokens: {both_units(nbytes)}")
        # A wide, unseen disc, so that the pointer need not hit the mark itself.
        parts.append(
            f"<g><title>{says}</title>{_mark(px, py, index, 4)}"
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="11" fill="none" pointer-events="all"/></g>'
        )
    return parts


def _asked(answers: Sequence[Answer], x: Scale, y: Scale) -> list[str]:
    """A ring around the chosen context; of two sizes, the larger has its label above, the smaller below."""
    parts = []
    largest = max(answer.size.nbytes for answer in answers)
    for index, answer in enumerate(answers):
        size = answer.size
        if not size.nbytes or not 2 ** POWERS[0] <= size.tokens <= 2 ** POWERS[-1]:
            continue
        px, py = x(size.tokens), y(size.nbytes)
        above = size.nbytes == largest and index == [a.size.nbytes for a in answers].index(largest)
        parts.append(_mark(px, py, index, 8, hollow=True))
        # A rising line leaves room above it at the left and below it at the right.
        anchor = "end" if above and px > LEFT + 150 else "start"
        parts.append(label(px, py - 14 if above else py + 24, both_units(size.nbytes), 12, anchor, bold=True))
    return parts


def _mark(px: float, py: float, index: int, radius: int, hollow: bool = False) -> str:
    """A disc for the first model, a square for the second."""
    look = paint(stroke="cache", width=2) if hollow else paint("cache")
    if index == 0:
        return f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{radius}" {look}/>'
    return f'<path d="M{px - radius:.1f} {py - radius:.1f}h{2 * radius}v{2 * radius}h{-2 * radius}z" {look}/>'


def _legend(answers: Sequence[Answer]) -> str:
    parts = []
    for index, answer in enumerate(answers):
        line = (
            f'<svg width="46" height="14" viewBox="0 0 46 14" aria-hidden="true" style="vertical-align:middle">'
            f'<path d="M0 7H46" {paint(stroke="cache", width=2, dash=DASHES[index])}/>'
            f"{_mark(23, 7, index, 4)}</svg>"
        )
        name = f"{'solid line, discs' if index == 0 else 'dashed line, squares'}: {answer.name}"
        parts.append(f'<span style="margin-right:1.6em">{line} <bdi>{escape(name)}</bdi></span>')
    return styled(f'<p style="margin:.2em 0">{"".join(parts)}</p>')


def curves_table(answers: Sequence[Answer]) -> str:
    """The curves as numbers; folded."""
    rows = [
        (f"{tokens:,}", *(both_units(answer.curve[row][1]) for answer in answers))
        for row, (tokens, _) in enumerate(answers[0].curve)
    ]
    return folded("The same as a table", table(("context, tokens", *(a.name for a in answers)), rows))
