"""Cache sizes as pictures, each also as text: growth over the context, layer by layer, and the article's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from llmlesson.sizing import KVCacheSize, get_gpu, kv_cache
from llmlesson.sizing.result import KIND_NAMES
from llmlesson.sizing.tables import kinds, text_table
from llmlesson.sizing.units import both_units
from llmlesson.views.markup import table
from llmlesson.views.plot import DASHES, NEUTRAL, colour, name_lines, new_figure

CONTEXTS = tuple(2**power for power in range(7, 21))  # 128 … 1,048,576 tokens
GPUS = ("RTX4090-24GB", "H100-80GB")
ARTICLE_TOKENS = (1_000, 100_000, 1_000_000)
# A 7B model of the multi-head kind, and models of about its size that came after it.
ARTICLE_MODELS = ("Llama-2-7b-hf", "Mistral-7B-v0.3", "Llama-3.1-8B", "Qwen2.5-7B")


def size_curves(
    models: Sequence[Any], contexts: Sequence[int] = CONTEXTS, dtype: str = "bf16", gpus: Sequence[str] = GPUS
) -> go.Figure:
    """Cache size in GB against context, both axes logarithmic, one line per model; the memory of `gpus` as lines."""
    figure = new_figure(f"KV cache of one sequence, {dtype}", "context, tokens", "cache, GB (10⁹)")
    ends = {}
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
        ends[f"memory of {name}"] = (contexts[-1], memory)
    for index, model in enumerate(models):
        sizes = [kv_cache(model, tokens, dtype=dtype) for tokens in contexts]
        name = f"{_short(sizes[0])} ({kinds(sizes[0])})"
        figure.add_scatter(
            x=list(contexts),
            y=[size.nbytes / 10**9 for size in sizes],
            mode="lines",
            name=name,
            line={"color": colour("cache"), "width": 2, "dash": DASHES[index % len(DASHES)]},
            customdata=[[both_units(size.nbytes)] for size in sizes],
            hovertemplate="%{x:,} tokens: %{customdata[0]}",
        )
        ends[name] = (contexts[-1], sizes[-1].nbytes / 10**9)
    name_lines(figure, ends)
    figure.update_layout(margin_r=260)
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log", dtick=1, tickformat=",~g")
    return figure


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
