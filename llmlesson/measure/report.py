"""A benchmark report to read (Markdown, which a terminal shows well enough) and to compute with (JSON)."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

import torch
import transformers

from llmlesson import __version__
from llmlesson.measure.bench import DYNAMIC, FEWEST, MOST, NO_CACHE, OURS, STATIC, STEPS, Report, Row
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
        "MFU and MBU: counted work over time, as a share of the measured limits; of the step without a cache, that of "
        "reading everything again.",
        "\n".join(f"- {line}" for line in [*comparisons(report.rows), *report.left_out]),
    ]
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[Row]) -> str:
    """One line a row, columns aligned."""
    heads = ["prompt", "batch", "contender", "first token, ms", "decode, tokens/s", "a step, ms"]
    heads += ["prefill MFU", "step MFU", "step MBU"]
    lines = [heads, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]

    def align(line: list[str]) -> str:
        cells = [
            cell.ljust(width) if column == 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "| " + " | ".join(cells) + " |"

    rule = "|".join(
        ":" + "-" * (width + 1) if column == 2 else "-" * (width + 1) + ":" for column, width in enumerate(widths)
    )
    return "\n".join([align(heads), f"|{rule}|", *(align(line) for line in lines[1:])])


def comparisons(rows: Sequence[Row]) -> list[str]:
    """Our engine against each other contender at the same workload, in words."""
    by_key = {(row.prompt_tokens, row.batch, row.contender): row for row in rows}
    lines = []
    for (length, batch, contender), own in by_key.items():
        if contender != OURS:
            continue
        at = f"{length} tokens, batch size {batch}"
        for other_name in (DYNAMIC, STATIC, NO_CACHE):
            other = by_key.get((length, batch, other_name))
            if other is None:
                continue
            if other_name != NO_CACHE:
                lines.append(f"First token, {at}: {_ratio(own.first_sample, other.first_sample, other_name)}")
            lines.append(f"Decode, {at}: {_ratio(own.step_sample, other.step_sample, other_name)}")
    return lines


def to_json(report: Report, day: date) -> dict[str, Any]:
    """Everything, single measurements included. Times in seconds, sizes in bytes; percentages are fractions of 1."""
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
        "comparisons": comparisons(report.rows),
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


def _ratio(own: Sample, other: Sample, name: str) -> str:
    factor = speedup(own, other)
    if factor is not None:
        return f"{OURS} is {factor:.2f} times as fast as {name}."
    return f"no ratio to {name}, since {_ms(own)} and {_ms(other)} ms differ by no more than they scatter."


def _ms(sample: Sample) -> str:
    return f"{1000 * sample.median:.1f} ± {1000 * sample.spread:.1f}"


def _versions() -> str:
    return (
        f"llmlesson {__version__} · torch {torch.__version__} · transformers {transformers.__version__} · "
        f"Python {platform.python_version()} · {platform.system()}"
    )
