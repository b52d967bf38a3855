from __future__ import annotations

import json
from datetime import date

import pytest
from benchmark.reports import REPORT

from llmlesson.benchmark import report
from llmlesson.benchmark.bench import DYNAMIC, INT8, NO_CACHE, OURS, STATIC

DAY = date(2026, 1, 31)


def test_the_section_names_day_machine_versions_and_limits():
    text = report.to_markdown(REPORT, DAY)
    for part in (
        "## 2026-01-31: A CPU, 2 threads",
        "float32",
        "torch 2.",
        "transformers 5.",
        "20.0 GB/s",
        "100 GFLOP/s",
    ):
        assert part in text


def test_the_table_is_markdown_and_aligned():
    lines = report.table(REPORT.rows).splitlines()
    assert len(lines) == 2 + len(REPORT.rows)
    assert len({len(line) for line in lines}) == 1
    assert len({line.count("|") for line in lines}) == 1
    [ours] = [line for line in lines if f"| {OURS} " in line and "     4 |" in line]
    assert "301.0 ± 1.0" in ours
    assert " 50.0 " in ours  # four tokens every 80 ms
    assert "80.0 ± 0.0" in ours


def test_a_ratio_is_quoted_only_beyond_the_spread():
    found = {
        (r["batch"], r["contender"], r["against"]): (r["first_token"], r["step"]) for r in report.ratios(REPORT.rows)
    }
    assert list(found) == [(1, OURS, DYNAMIC), (1, OURS, STATIC), (1, OURS, NO_CACHE), (1, INT8, OURS)]
    assert found[1, OURS, DYNAMIC] == (pytest.approx(2.0), pytest.approx(1.5))
    assert found[1, OURS, STATIC] == (None, pytest.approx(2.0))
    assert found[1, OURS, NO_CACHE] == (None, pytest.approx(2.0))
    assert found[1, INT8, OURS] == (pytest.approx(0.5), pytest.approx(1.7))
    lines = report.ratio_table(REPORT.rows).splitlines()
    assert [line.split("|")[-3:-1] for line in lines[2:4]] == [
        ["      2.00 × ", " 1.50 × "],
        ["           — ", " 2.00 × "],
    ]


def test_what_was_left_out_is_said():
    assert "Left out: transformers, static cache, 32 tokens, batch size 4: no compiler." in report.to_markdown(
        REPORT, DAY
    )


def test_json_holds_every_measurement():
    content = json.loads(json.dumps(report.to_json(REPORT, DAY)))
    first = content["rows"][0]
    assert first["step"]["seconds"] == [0.050, 0.051, 0.052]
    assert first["step"]["median"] == 0.051
    assert first["step"]["interquartile_range"] == pytest.approx(0.001)
    assert first["tokens_per_second"] == pytest.approx(1 / 0.051)
    assert first["step"]["mbu"] == pytest.approx(first["step"]["nbytes"] / 0.051 / 20e9)
    assert content["roofline"]["bytes_per_second"] == 20e9
    assert content["left_out"] == list(REPORT.left_out)
