"""Sizes of several models side by side, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from llmlesson.sizing.result import KVCacheSize
from llmlesson.sizing.specs import Attention


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell: the first is left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = []
    for row in (header, ["─" * width for width in widths], *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def compare_table(sizes: Sequence[KVCacheSize]) -> str:
    """One row per model: how it attends, growth per token, fixed bytes, and the batch's total in GB and GiB."""
    header = ("model", "layers", "bytes/token", "windows full", "fixed bytes", "GB (10⁹)", "GiB (2³⁰)")
    rows = [
        (
            size.name,
            kinds(size),
            f"{size.bytes_per_token:,}",
            f"{size.marginal_bytes_per_token:,}",
            f"{size.fixed_nbytes:,}",
            f"{size.nbytes / 10**9:,.3f}",
            f"{size.nbytes / 2**30:,.3f}",
        )
        for size in sizes
    ]
    return text_table(header, rows)


def kinds(size: KVCacheSize) -> str:
    """The kinds of layers and how many, the growing ones first: "32 MHA", "10 GQA + 52 GQA sliding", "61 MLA"."""
    names = [_kind(size, index) for index in range(len(size.per_layer))]
    growing = {name for name, layer in zip(names, size.per_layer, strict=True) if layer.marginal_bytes_per_token}
    counts = sorted(Counter(names).items(), key=lambda item: item[0] not in growing)
    return " + ".join(f"{count} {name}" for name, count in counts)


def _kind(size: KVCacheSize, index: int) -> str:
    kind = size.per_layer[index].kind
    if kind in ("mla", "linear", "conv", "none", "shared"):
        return "MLA" if kind == "mla" else kind
    heads = next((v.value for v in size.spec.values if v.name == "num_attention_heads"), None)
    own = next((p for p in size.spec.layers[index].parts if isinstance(p, Attention)), None)
    if own is None or not isinstance(heads, int):
        return kind
    sharing = "MQA" if own.kv_heads == 1 < heads else "MHA" if own.kv_heads == heads else "GQA"
    return sharing if kind == "full" else f"{sharing} {kind}"
