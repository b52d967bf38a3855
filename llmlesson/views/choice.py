"""What a draw chooses from, before and after temperature, top-k and top-p."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plotly.subplots import make_subplots
from torch import Tensor

from llmlesson.views.markup import label, note, svg
from llmlesson.views.plot import TEMPLATE, Pictured, colour
from llmlesson.views.style import paint
from llmlesson.views.text import visible

COLUMN, ROW, LEFT, RIGHT, LETTERS = 40, 76, 46, 200, 86
HOW = "Computed from the model's scores. A bar is the probability of a token; × is a token that is ruled out."


def choices(ids: Sequence[int], texts: Sequence[str], settings: Mapping[str, Tensor]) -> Pictured:
    """A row of bars for each setting, on one scale, with a still of the same.

    ids, texts: the tokens that are shown. settings: float32 [V] by name, the probabilities from which a draw is made.
    """
    shown = {name: [float(all_of_them[i]) for i in ids] for name, all_of_them in settings.items()}
    notes = {name: _beyond(all_of_them, ids) for name, all_of_them in settings.items()}
    tokens = [visible(text, 12) for text in texts]
    figure = make_subplots(rows=len(settings), shared_xaxes=True, shared_yaxes="all", vertical_spacing=0.04)
    figure.update_layout(template=TEMPLATE, height=60 + 110 * len(settings), margin=dict(t=10, r=RIGHT, b=90))
    for row, (name, shares) in enumerate(shown.items(), start=1):
        figure.add_bar(
            x=list(range(len(ids))),
            y=[100 * share for share in shares],
            row=row,
            col=1,
            marker_color=colour("answer"),
            text=["" if share else "×" for share in shares],
            textposition="outside",
            hovertext=[
                f"{token}: {100 * share:.2f} %" if share else f"{token}: ruled out"
                for token, share in zip(tokens, shares, strict=True)
            ],
            hovertemplate=f"%{{hovertext}}<extra>{name}</extra>",
            name=name,
        )
        figure.add_annotation(
            text=f"<b>{name}</b><br>{notes[name]}",
            x=1,
            xref="x domain" if row == 1 else f"x{row} domain",
            y=0.5,
            yref="y domain" if row == 1 else f"y{row} domain",
            align="left",
        )
    figure.update_xaxes(tickvals=list(range(len(ids))), ticktext=tokens, tickangle=-60, ticks="")
    figure.update_yaxes(ticksuffix=" %", nticks=4)
    figure.update_yaxes(title_text="probability", row=(len(settings) + 1) // 2, col=1)
    figure.update_layout(hovermode="x")
    return Pictured(figure, _picture(tokens, shown, notes), _spoken(tokens, shown, notes))


def _picture(tokens: Sequence[str], shown: Mapping[str, Sequence[float]], notes: Mapping[str, str]) -> str:
    highest = max(max(shares) for shares in shown.values())
    width, parts = LEFT + COLUMN * len(tokens), []
    for row, (name, shares) in enumerate(shown.items()):
        base = (row + 1) * ROW
        parts.append(f'<path d="M{LEFT} {base}H{width}" {paint(stroke="line")}/>')
        for place, share in enumerate(shares):
            x, height = LEFT + place * COLUMN, share / highest * (ROW - 26)
            if share:
                bar = f'x="{x + 6}" y="{base - height:.1f}" width="{COLUMN - 12}" height="{height:.1f}"'
                parts.append(f"<rect {bar} {paint('answer')}/>")
            text = f"{100 * share:.1f}" if share >= 0.001 else "<0.1" if share else "×"
            parts.append(label(x + COLUMN / 2, base - height - 4, text, 11, "middle"))
        parts += [label(width + 10, base - 26, name, bold=True), label(width + 10, base - 10, notes[name])]
    parts.append(label(14, len(shown) * ROW / 2, "probability, %", anchor="middle", turn=-90))
    for place, token in enumerate(tokens):
        parts.append(label(LEFT + (place + 0.6) * COLUMN, len(shown) * ROW + 12, token, 11, "end", mono=True, turn=-60))
    return svg(width + RIGHT, len(shown) * ROW + LETTERS, _spoken(tokens, shown, notes), parts) + note(HOW)


def _beyond(probabilities: Tensor, ids: Sequence[int]) -> str:
    """How much goes to tokens that are not shown."""
    rest = max(1 - float(probabilities[list(ids)].sum()), 0.0)
    others = int((probabilities > 0).sum()) - int((probabilities[list(ids)] > 0).sum())
    return f"{others:,} others: {100 * rest:.0f} %" if others else "no others"


def _spoken(tokens: Sequence[str], shown: Mapping[str, Sequence[float]], notes: Mapping[str, str]) -> str:
    lines = [
        f"{name}: "
        + ", ".join(f"{token} {100 * share:.1f} %" for token, share in zip(tokens, shares, strict=True) if share)
        + f"; {notes[name]}"
        for name, shares in shown.items()
    ]
    return f"Probabilities of the likeliest tokens. {'. '.join(lines)}."
