"""Cache sizes as pictures, each also as text: growth over the context, layer by layer, and the article's table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from math import ceil, floor, log10
from typing import Any

import plotly.graph_objects as go

from llmlesson.sizing import KVCacheSize, get_gpu, kv_cache
from llmlesson.sizing.result import KIND_NAMES
from llmlesson.sizing.tables import kinds, text_table
from llmlesson.sizing.units import both_units
from llmlesson.views.loglog import HEIGHT, WIDTH, LogLog
from llmlesson.views.markup import folded, label, svg, table
from llmlesson.views.plot import DASHES, NEUTRAL, Pictured, colour, name_lines, new_figure
from llmlesson.views.style import paint

CONTEXTS = tuple(2**power for power in range(7, 21))  # 128 … 1,048,576 tokens
GPUS = ("RTX4090-24GB", "H100-80GB")
SVG_DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2")  # as plot.DASHES
ARTICLE_TOKENS = (1_000, 100_000, 1_000_000)
# A 7B model of the multi-head kind, and models of about its size that came after it.
ARTICLE_MODELS = ("Llama-2-7b-hf", "Mistral-7B-v0.3", "Llama-3.1-8B", "Qwen2.5-7B")


def size_curves(
    models: Sequence[Any], contexts: Sequence[int] = CONTEXTS, dtype: str = "bf16", gpus: Sequence[str] = GPUS
) -> go.Figure:
    """Cache size in GB against context, both axes logarithmic, one line per model; the memory of `gpus` as lines."""
    figure = new_figure(f"KV cache of one sequence, {dtype}", "context, tokens", "cache, GB (10⁹)")
    ends, levels = {}, {}
    for name in gpus:
        memory = get_gpu(name).memory_nbytes / 10**9
        figure.add_scatter(
            x=[contexts[0], contexts[-1]],
            y=[memory, memory],
            mode="lines",
            line={"color": NEUTRAL, "dash": "2px,3px", "width": 1},
            name=name,
            hoverinfo="skip",
        )
        levels[f"memory of {name}"] = memory
    for index, model in enumerate(models):
        sizes = [kv_cache(model, tokens, dtype=dtype) for tokens in contexts]
        name = f"{_short(sizes[0])} ({kinds(sizes[0])})"
        figure.add_scatter(
            x=list(contexts),
            y=[size.nbytes / 10**9 for size in sizes],
            mode="lines",
            name=name,
            line={"color": colour("cache"), "width": 2, "dash": DASHES[index % len(DASHES)]},
            customdata=[[f"{size.nbytes:,} bytes<br>{both_units(size.nbytes)}"] for size in sizes],
            hovertemplate="%{fullData.name}<br>%{x:,} tokens: %{customdata[0]}<extra></extra>",
        )
        ends[name] = (contexts[-1], sizes[-1].nbytes / 10**9)
    name_lines(figure, ends)
    for name, memory in levels.items():
        figure.add_annotation(text=name, x=log10(contexts[0]), y=log10(memory), yshift=8)
    figure.update_layout(margin_r=300)
    figure.update_xaxes(type="log", range=[log10(contexts[0]), log10(contexts[-1])])
    figure.update_yaxes(type="log", dtick=1, tickformat=",~g")
    return figure


def sizes_figure(
    models: Sequence[Any], contexts: Sequence[int] = CONTEXTS, dtype: str = "bf16", gpus: Sequence[str] = GPUS
) -> Pictured:
    """`size_curves` with a still of the same sizes. Raises LessonError for what names no model or no card."""
    figure = size_curves(models, contexts, dtype, gpus)
    html = sizes_picture(models, contexts, dtype, gpus)
    return Pictured(figure, html, size_curves_text(models, contexts, dtype, gpus))


def sizes_picture(
    models: Sequence[Any], contexts: Sequence[int] = CONTEXTS, dtype: str = "bf16", gpus: Sequence[str] = GPUS
) -> str:
    """The still of `size_curves`, with its numbers as a table. HTML."""
    columns = [[kv_cache(model, tokens, dtype=dtype) for tokens in contexts] for model in models]
    memory = {f"memory of {name}": get_gpu(name).memory_nbytes for name in gpus}
    every = [size.nbytes for column in columns for size in column if size.nbytes] + list(memory.values())
    low, high = floor(log10(min(every))), ceil(log10(max(every)))
    plot = LogLog(contexts[0], contexts[-1], 10**low, 10**high, margin=330)
    parts = plot.axes(
        contexts[:: max(1, len(contexts) // 7)],
        [10**power for power in range(low, high + 1)],
        ("context, tokens", ""),
        ("{:,}".format, _round_bytes),
    )
    for name, level in memory.items():
        line = plot.line([(contexts[0], level), (contexts[-1], level)])
        parts.append(f'<path d="{line}" {paint(stroke="wait", width=1.5, dash="2 3")}/>')
        parts.append(label(plot.x(contexts[0]) + 8, plot.y(level) - 5, name))
    ends = []
    for column, dash in zip(columns, cycle(SVG_DASHES), strict=False):
        line = plot.line([(tokens, size.nbytes) for tokens, size in zip(contexts, column, strict=True) if size.nbytes])
        parts.append(f'<path d="{line}" {paint(stroke="cache", width=2, dash=dash)}/>')
        ends.append((column[-1].nbytes, f"{_short(column[0])} ({kinds(column[0])})"))
    side, lowest = WIDTH - plot.margin + 8, 0.0
    for nbytes, name in sorted(ends, reverse=True):
        at = lowest = max(plot.y(max(nbytes, 10**low)) + 4, lowest + 15)
        parts.append(label(side, at, name))
    head = ("context, tokens", *(_short(column[0]) for column in columns))
    rows = [
        (f"{tokens:,}", *(f"{column[row].nbytes:,} bytes" for column in columns)) for row, tokens in enumerate(contexts)
    ]
    spoken = f"Cache of one sequence against context. {size_curves_text(models, contexts, dtype, gpus)}"
    return svg(WIDTH, HEIGHT, spoken, parts) + folded("The same as a table", table(head, rows))


def _round_bytes(nbytes: float) -> str:
    """A power of ten: "10 MB"."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("KB", 3)):
        if nbytes >= 10**power:
            return f"{nbytes / 10**power:,g} {unit}"
    return f"{nbytes:,g} bytes"


def size_curves_text(
    models: Sequence[Any], contexts: Sequence[int] = CONTEXTS, dtype: str = "bf16", gpus: Sequence[str] = GPUS
) -> str:
    """`size_curves` as text: GB by context and model, and the GPUs' memory."""
    columns = [[kv_cache(model, tokens, dtype=dtype) for tokens in contexts] for model in models]
    header = ("context", *(_short(column[0]) for column in columns))
    rows = [
        (f"{tokens:,}", *(_gigabytes(column[row].nbytes) for column in columns)) for row, tokens in enumerate(contexts)
    ]
    memory = ", ".join(f"{name} {get_gpu(name).memory_nbytes / 10**9:,.1f}" for name in gpus)
    lines = [f"KV cache of one sequence, {dtype}, in GB (10⁹ bytes)", text_table(header, rows)]
    return "\n".join([*lines, f"Memory in GB: {memory}"] if gpus else lines)


def layer_bars(size: KVCacheSize) -> go.Figure:
    """One bar per layer, patterned and named by kind: where a mixed model keeps its bytes."""
    figure = new_figure(_caption(size), "layer", "cache, MB (10⁶)")
    for index, kind in enumerate(_kinds_in_order(size)):
        layers = [layer for layer in size.per_layer if layer.kind == kind]
        figure.add_bar(
            x=[layer.index for layer in layers],
            y=[layer.nbytes / 10**6 for layer in layers],
            name=KIND_NAMES.get(kind, kind),
            marker={"color": colour("cache"), "pattern": {"shape": ("", "/", ".", "x")[index % 4]}},
            hovertemplate="layer %{x}: %{y:,.3f} MB",
        )
    # A form that repeats in many bars has a legend.
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": -0.2}, margin_r=20)
    return figure


def layer_bars_text(size: KVCacheSize, width: int = 40) -> str:
    """`layer_bars` as text: one line per layer, with a bar of at most `width` characters."""
    largest = max(layer.nbytes for layer in size.per_layer) or 1
    rows = []
    for layer in size.per_layer:
        length = max(1, round(width * layer.nbytes / largest)) if layer.nbytes else 0
        name = KIND_NAMES.get(layer.kind, layer.kind)
        rows.append(f"{layer.index:>4}  {'█' * length:<{width}}  {layer.nbytes:>15,} bytes  {name}")
    return "\n".join([_caption(size), *rows])


def article_table(models: Sequence[Any] = ARTICLE_MODELS, dtype: str = "bf16") -> str:
    """HTML: sizes at 1,000, 100,000 and 1,000,000 tokens. "Hundreds of KB a token" holds for the MHA model only."""
    header, rows = _article_rows(models, dtype)
    return table(header, rows, _article_caption(dtype))


def article_table_text(models: Sequence[Any] = ARTICLE_MODELS, dtype: str = "bf16") -> str:
    """`article_table` as text."""
    header, rows = _article_rows(models, dtype)
    return f"{_article_caption(dtype)}\n{text_table(header, rows)}"


def _article_caption(dtype: str) -> str:
    return f"KV cache of one sequence, {dtype}; each size in decimal and in binary units"


def _article_rows(models: Sequence[Any], dtype: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    header = ("model", "layers", "a token", *(f"{tokens:,} tokens" for tokens in ARTICLE_TOKENS))
    rows = []
    for model in models:
        sizes = [kv_cache(model, tokens, dtype=dtype) for tokens in ARTICLE_TOKENS]
        growth = f"{sizes[0].bytes_per_token:,} bytes"
        rows.append((_short(sizes[0]), kinds(sizes[0]), growth, *(both_units(size.nbytes) for size in sizes)))
    return header, rows


def _kinds_in_order(size: KVCacheSize) -> list[str]:
    return list(dict.fromkeys(layer.kind for layer in size.per_layer))


def _caption(size: KVCacheSize) -> str:
    sequences = "1 sequence" if size.batch == 1 else f"{size.batch:,} sequences"
    return f"{_short(size)}: {size.tokens:,} tokens × {sequences}, {size.dtype}, {both_units(size.nbytes)}"


def _short(size: KVCacheSize) -> str:
    return size.name.rpartition("/")[2]


def _gigabytes(nbytes: int) -> str:
    value = nbytes / 10**9
    return f"{value:,.1f}" if value >= 100 else f"{value:.3g}"
