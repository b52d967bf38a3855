"""What a KV cache holds: its values as a heatmap, its bytes by layer, what the last step changed."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.views.request import BLUE, ORANGE
from llmlesson.views.text import escape, visible

GRID = "grid-auto-rows:15px;gap:1px;font-size:11px;line-height:15px"
MOST_CELLS = 1536  # of a heatmap: each costs some 50 bytes to send


def rows_that_fit(head_dim: int) -> int:
    """Positions that one heatmap shows."""
    return max(4, MOST_CELLS // head_dim)


def heatmap(values: Sequence[Sequence[float]], first: int, texts: Sequence[str], new: Sequence[int], label: str) -> str:
    """A vector for each position as a row of cells; HTML. Each cell's number shows on hover.

    values: [positions, head_dim]; texts: their tokens; first: the index of the first of them; new: the indices that
    came with the last step; label: what is shown, such as "K of layer 0, head 1".
    """
    most = max((abs(v) for row in values for v in row), default=0.0)
    rows = (
        _row(first + i, text, row, most, first + i in new)
        for i, (text, row) in enumerate(zip(texts, values, strict=True))
    )
    dims = len(values[0])
    ticks = "".join(f'<span style="grid-column:span {min(8, dims - d)}">{d}</span>' for d in range(0, dims, 8))
    # A grid sizes its cells, so that each needs to bring nothing but its colour.
    style = f"display:grid;grid-template-columns:max-content max-content repeat({dims},10px);{GRID}"
    return (
        f"<p style='margin:.4em 0'><strong>{escape(label)}</strong>: a row for each position, its {dims} values from "
        f"left to right. Point at a cell for its number. "
        f'<span style="background:{ORANGE};color:#000">&nbsp;orange&nbsp;</span> is positive, '
        f'<span style="background:{BLUE};color:#000">&nbsp;blue with –&nbsp;</span> negative; the strongest is '
        f"{most:.3g}. ★ new in the last step.</p>"
        f'<div style="overflow-x:auto" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<div style="{style}"><span></span><span></span>{ticks}{"".join(rows)}</div></div>'
    )


def numbers(values: Sequence[float], title: str) -> str:
    """One position's vector to read or to hear; HTML, folded."""
    shown = ", ".join(f"{value:.4g}" for value in values)
    return (
        f"<details><summary>{escape(title)}, as numbers</summary>"
        f'<p style="overflow-wrap:anywhere">{shown}</p></details>'
    )


def sizes(formula: str, predicted: int, measured: int, layers: Sequence[tuple[int, int]]) -> str:
    """Bytes in all and by layer, as the config predicts and as the tensors have them; HTML.

    formula: the arithmetic of `predicted`. layers: predicted and measured bytes of each.
    """
    body = "".join(
        f'<tr><th scope="row">{index}</th><td>{a:,}</td><td>{b:,}</td><td>{_mark(a, b)}</td></tr>'
        for index, (a, b) in enumerate(layers)
    )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("layer", "predicted", "measured", ""))
    return (
        f"<table><caption>Bytes in the cache</caption>"
        f'<tr><th scope="row" style="text-align:left">predicted from the config</th>'
        f'<td style="text-align:left">{escape(formula)} = {predicted:,}</td></tr>'
        f'<tr><th scope="row" style="text-align:left">measured on the tensors</th>'
        f'<td style="text-align:left">{measured:,} {_mark(predicted, measured)}</td></tr></table>'
        f"<details><summary>By layer</summary><table><tr>{heads}</tr>{body}</table></details>"
    )


def change(name: str, before: int, after: int, nbytes: int, kept: bool) -> str:
    """What the last step did to the cache; HTML.

    name: of the step; before, after: positions; nbytes: the difference; kept: whether all that was there before is
    the same, bit for bit.
    """
    if after > before:
        what = f"{after - before:,} position{'s' * (after - before != 1)} added, {nbytes:,} bytes"
    else:
        what = f"{before - after:,} position{'s' * (before - after != 1)} dropped, {-nbytes:,} bytes"
    older = f"the {min(before, after):,} older positions: "
    older += "unchanged ✓ (compared bit for bit in all layers)" if kept else "changed ✗"
    older = older if min(before, after) else "nothing was there before"
    return f"<p style='margin:.4em 0'><strong>{escape(name)}</strong>: {what}; {older}.</p>"


def head_map(strength: Sequence[Sequence[float]], shown: tuple[int, int], name: str) -> str:
    """How strong the values of each layer (column) and head (row) are, the shown one marked; HTML.

    strength: [layers][heads], not negative. shown: layer and head. name: of the quantity.
    """
    most = max(max(row) for row in strength) or 1.0
    layers, heads = len(strength), len(strength[0])
    head = "<span>layer</span>" + "".join(f"<span>{i}</span>" for i in range(layers))
    rows = "".join(
        f'<span style="white-space:nowrap;padding-right:4px">head {h}</span>'
        + "".join(
            f"<b style=background:{ORANGE}{_alpha(strength[i][h] / most)} "
            f'title="layer {i}, head {h}: {strength[i][h]:.3g}">{"◉" if (i, h) == shown else ""}</b>'
            for i in range(layers)
        )
        for h in range(heads)
    )
    style = f"display:grid;grid-template-columns:max-content repeat({layers},17px);{GRID};text-align:center"
    return (
        f"<p style='margin:.4em 0'><strong>All layers and heads</strong>: {escape(name)}, up to {most:.3g}. "
        "◉ is the one shown below.</p>"
        '<div style="overflow-x:auto" tabindex="0" role="region" aria-label="layers and heads">'
        f'<div style="{style}">{head}{rows}</div></div>'
    )


def _row(index: int, text: str, values: Sequence[float], most: float, new: bool) -> str:
    cells = "".join(_cell(value, most or 1) for value in values)
    frame = f";outline:2px solid {ORANGE}" if new else ""
    return (
        f'<span style="text-align:right;padding:0 4px{frame}">{"★ " if new else ""}{index}</span>'
        f'<bdi style="padding:0 4px;white-space:nowrap">{escape(visible(text, 12))}</bdi>{cells}'
    )


def _cell(value: float, most: float) -> str:
    colour, sign = (ORANGE, "") if value >= 0 else (BLUE, "–")
    return f"<b style=background:{colour}{_alpha(abs(value) / most)} title={value:.3g}>{sign}</b>"


def _alpha(share: float) -> str:
    """Opacity as two hex digits. The square root lets small values show beside the few large ones."""
    return f"{round(255 * share**0.5):02x}"


def _mark(predicted: int, measured: int) -> str:
    return "✓ equal" if predicted == measured else "✗ not equal"
