"""What a KV cache holds: its values as a heatmap, its bytes by layer, what the last step changed."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.views.markup import BLUE, VERMILLION, folded, note, table, title
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
        title(label)
        + '<p style="margin:.2em 0;line-height:1.4">A row for each position, its values from left to right; point at a '
        f'cell for its number. <span style="background:{VERMILLION}{_alpha(1)}">&nbsp;Orange&nbsp;</span> is positive, '
        f'<span style="background:{BLUE}{_alpha(1)}">&nbsp;– blue&nbsp;</span> negative, and the strongest is '
        f"{most:.3g}.{' ★ came with the last step.' if new else ''}</p>"
        + _scroller(label, f'<div style="{style}"><span></span><span></span>{ticks}{"".join(rows)}</div>')
    )


def numbers(values: Sequence[float], name: str) -> str:
    """One position's vector to read or to hear; HTML, folded."""
    return folded(f"{name}, as numbers", note(", ".join(f"{value:.4g}" for value in values)))


def sizes(formula: str, predicted: int, measured: int, layers: Sequence[tuple[int, int]]) -> str:
    """Bytes in all and by layer, as the config predicts and as the tensors have them; HTML.

    formula: the arithmetic of `predicted`. layers: predicted and measured bytes of each.
    """
    total = [
        ("predicted from the config", f"{formula} =", f"{predicted:,}"),
        ("measured on the tensors", _mark(predicted, measured), f"{measured:,}"),
    ]
    rows = [(index, f"{a:,}", f"{b:,}", _mark(a, b)) for index, (a, b) in enumerate(layers)]
    return (
        title("Bytes in the cache")
        + table(["", "", "bytes"], total)
        + folded("By layer", table(["layer", "predicted", "measured", ""], rows))
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
    return title(f"{name}: {what}") + note(f"{older[0].upper()}{older[1:]}.")


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
            f"<b style=background:{VERMILLION}{_alpha(strength[i][h] / most)} "
            f'title="layer {i}, head {h}: {strength[i][h]:.3g}">{"◉" if (i, h) == shown else ""}</b>'
            for i in range(layers)
        )
        for h in range(heads)
    )
    style = f"display:grid;grid-template-columns:max-content repeat({layers},17px);{GRID};text-align:center"
    return title(f"All layers and heads: {name}, up to {most:.3g}; ◉ is the one shown below") + _scroller(
        "layers and heads", f'<div style="{style}">{head}{rows}</div>'
    )


def _scroller(label: str, html: str) -> str:
    """What scrolls must be reachable by keyboard."""
    return f'<div style="overflow-x:auto" tabindex="0" role="region" aria-label="{escape(label)}">{html}</div>'


def _row(index: int, text: str, values: Sequence[float], most: float, new: bool) -> str:
    cells = "".join(_cell(value, most or 1) for value in values)
    frame = f";outline:2px solid {VERMILLION};outline-offset:-2px" if new else ""
    return (
        f'<span style="text-align:right;padding:0 4px{frame}">{"★ " if new else ""}{index}</span>'
        f'<bdi style="padding:0 4px;white-space:nowrap">{escape(visible(text, 12))}</bdi>{cells}'
    )


def _cell(value: float, most: float) -> str:
    colour, sign = (VERMILLION, "") if value >= 0 else (BLUE, "–")
    return f"<b style=background:{colour}{_alpha(abs(value) / most)} title={value:.3g}>{sign}</b>"


def _alpha(share: float) -> str:
    """Opacity as two hex digits: the square root lets small values show beside the few large ones.

    At most 0.7, so that a sign on the strongest can be read.
    """
    return f"{round(0.7 * 255 * share**0.5):02x}"


def _mark(predicted: int, measured: int) -> str:
    return "✓ equal" if predicted == measured else "✗ not equal"
