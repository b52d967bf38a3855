"""How a card's memory is used: weights, caches, what is kept free. One bar per plan, all to one scale."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.sizing import Plan
from llmlesson.views.markup import band, key_over_value, label, svg
from llmlesson.views.style import paint

WIDTH, LEFT, RIGHT, BAR, ROW = 900, 8, 8, 26, 76
NARROW = 3.0  # pixels below which users are drawn as one block


def memory_bars(plans: Sequence[Plan]) -> str:
    """SVG: for each plan the card's memory, with the weights, a box for every user's cache, and what is kept free."""
    largest = max(max(plan.gpu.memory_nbytes, plan.weights_nbytes) for plan in plans)
    per_byte = (WIDTH - LEFT - RIGHT) / largest
    parts: list[str] = []
    for row, plan in enumerate(plans):
        parts += _bar(plan, row * ROW, per_byte)
    return svg(WIDTH, len(plans) * ROW + 4, memory_bars_text(plans), parts)


def memory_bars_text(plans: Sequence[Plan]) -> str:
    """`memory_bars` as text: one line per plan."""
    return "\n".join(f"{_name(plan)}: {_spent(plan)}" for plan in plans)


def _bar(plan: Plan, top: float, per_byte: float) -> list[str]:
    at = top + 24
    memory = plan.gpu.memory_nbytes * per_byte
    weights, reserve = plan.weights_nbytes * per_byte, plan.reserve_nbytes * per_byte
    parts = [label(LEFT, top + 16, _name(plan), 13, bold=True), band(LEFT, at, weights, BAR, "wait")]
    width = plan.kv_nbytes_per_user * per_byte
    if width >= NARROW:
        parts += [key_over_value(LEFT + weights + i * width, at, width - 1, BAR) for i in range(plan.users)]
    else:
        parts.append(key_over_value(LEFT + weights, at, plan.users * width, BAR))
    if plan.kv_budget_nbytes >= 0:
        empty = paint(stroke="wait", width=1.5, dash="2 3")
        parts.append(f'<rect x="{LEFT + memory - reserve:.1f}" y="{at}" width="{reserve:.1f}" height="{BAR}" {empty}/>')
    outline = paint(stroke="broken" if plan.kv_budget_nbytes < 0 else "wait", width=1.5)
    parts.append(f'<rect x="{LEFT}" y="{at}" width="{memory:.1f}" height="{BAR}" {outline}/>')
    parts.append(label(LEFT, at + BAR + 15, _spent(plan), 12))
    return parts


def _name(plan: Plan) -> str:
    return f"{plan.name.rpartition('/')[2]} on {plan.gpu.name}, {plan.context:,} tokens each, cache in {plan.kv_dtype}"


def _spent(plan: Plan) -> str:
    if plan.kv_budget_nbytes < 0:
        return f"✗ weights {_gb(plan.weights_nbytes)}: more than the card has ({_gb(plan.gpu.memory_nbytes)})"
    return (
        f"weights {_gb(plan.weights_nbytes)} (grey) + {plan.users:,} users × {_gb(plan.kv_nbytes_per_user)} (K over V) "
        f"+ kept free {_gb(plan.reserve_nbytes)} (dotted), of {_gb(plan.gpu.memory_nbytes)}"
    )


def _gb(nbytes: int) -> str:
    return f"{nbytes / 10**9:,.2f} GB"
