"""A benchmark report as text (Markdown, also readable in a terminal) and as data (JSON)."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

import torch
import transformers

from llmlesson import __version__
from llmlesson.benchmark.bench import DYNAMIC, FEWEST, INT4, INT8, MOST, NO_CACHE, OURS, STATIC, STEPS, Report, Row
from llmlesson.measure.roofline import Placement
from llmlesson.measure.timing import Sample, speedup


def to_markdown(report: Report, day: date) -> str:
    """A section for `bench/RESULTS.md`."""
    peaks = report.roofline
    threads = f", {peaks.threads} thread{'s' * (peaks.threads > 1)}" if peaks.threads else ""
    parts = [
        f"## {day.isoformat()}: {peaks.device}{threads}",
        f"{report.model} in {peaks.dtype} · {_versions()}",
        f"Measured limits: {peaks}.",
        table(report.rows),
        f"Median ± interquartile range of {FEWEST} to {MOST} runs with {STEPS} decode steps each, in turns. "
        "MFU and MBU: counted work over time, as a share of the measured limits; a step without a cache counts "
        "the work of reading everything again.",
        ratio_table(report.rows),
        "How many times as fast, by the medians; — where the difference is within the spread of the measurements.",
        *(f"Left out: {what}." for what in report.left_out),
    ]
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[Row]) -> str:
    heads = ["prompt", "batch", "contender", "first token, ms", "decode, tokens/s", "a step, ms"]
    heads += ["prefill MFU", "step MFU", "step MBU"]
    return markdown_table(heads, [_cells(row) for row in rows])


def ratio_table(rows: Sequence[Row]) -> str:
    heads = ["prompt", "batch", "contender", "against", "first token", "decode"]
    return markdown_table(
        heads,
        [
            [str(r["prompt_tokens"]), str(r["batch"]), r["contender"], r["against"]]
            + [f"{factor:.2f} ×" if factor else "—" for factor in (r["first_token"], r["step"])]
            for r in ratios(rows)
        ],
    )


def ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How many times as fast one contender is as another at the same workload; None if that would be noise."""
    pairs = [(OURS, DYNAMIC), (OURS, STATIC), (OURS, NO_CACHE), (INT8, OURS), (INT4, OURS)]
    found = {(row.prompt_tokens, row.batch, row.contender): row for row in rows}
    workloads = dict.fromkeys((row.prompt_tokens, row.batch) for row in rows)
    return [
        {
            "prompt_tokens": workload[0],
            "batch": workload[1],
            "contender": contender,
            "against": against,
            "first_token": speedup(found[*workload, contender].first_sample, found[*workload, against].first_sample),
            "step": speedup(found[*workload, contender].step_sample, found[*workload, against].step_sample),
        }
        for workload in workloads
        for contender, against in pairs
        if (*workload, contender) in found and (*workload, against) in found
    ]


def markdown_table(heads: list[str], lines: list[list[str]]) -> str:
    """A Markdown table with aligned columns: words left, numbers right."""
    widths = [max(len(line[column]) for line in [heads, *lines]) for column in range(len(heads))]
    words = [head in ("contender", "against") for head in heads]

    def align(line: list[str]) -> str:
        cells = zip(line, widths, words, strict=True)
        return "| " + " | ".join(cell.ljust(n) if word else cell.rjust(n) for cell, n, word in cells) + " |"

    rules = [":" + "-" * (n + 1) if word else "-" * (n + 1) + ":" for n, word in zip(widths, words, strict=True)]
    return "\n".join([align(heads), "|" + "|".join(rules) + "|", *map(align, lines)])


def to_json(report: Report, day: date) -> dict[str, Any]:
    """Everything, including single measurements. Times in seconds, sizes in bytes; percentages are fractions of 1."""
    return {
        "date": day.isoformat(),
        "model": report.model,
        "versions": _versions(),
        "roofline": asdict(report.roofline),
        "rows": [
            {
                "contender": row.contender,
                "prompt_tokens": row.prompt_tokens,
                "batch": row.batch,
                "tokens_per_second": row.tokens_per_second,
                "first_token": _phase(row.first, row.first_sample),
                "step": _phase(row.step, row.step_sample),
            }
            for row in report.rows
        ],
        "ratios": ratios(report.rows),
        "left_out": list(report.left_out),
    }


def _phase(placement: Placement, sample: Sample) -> dict[str, Any]:
    return {
        "median": sample.median,
        "interquartile_range": sample.spread,
        "seconds": list(sample.seconds),
        "flops": placement.cost.flops,
        "nbytes": placement.cost.nbytes,
        "mfu": placement.mfu,
        "mbu": placement.mbu,
        "limit": placement.limit,
    }


def _cells(row: Row) -> list[str]:
    return [
        str(row.prompt_tokens),
        str(row.batch),
        row.contender,
        _ms(row.first_sample),
        f"{row.tokens_per_second:.1f}",
        _ms(row.step_sample),
        f"{row.first.mfu:.0%}",
        f"{row.step.mfu:.0%}",
        f"{row.step.mbu:.0%}",
    ]


def _ms(sample: Sample) -> str:
    return f"{1000 * sample.median:.1f} ± {1000 * sample.spread:.1f}"


def _versions() -> str:
    return (
        f"llmlesson {__version__} · torch {torch.__version__} · transformers {transformers.__version__} · "
        f"Python {platform.python_version()} · {platform.system()}"
    )
