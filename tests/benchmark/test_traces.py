"""`llmlesson bench --trace`: every request of the trace is answered in full, and the numbers are those of the clock."""

from __future__ import annotations

import json
import math
import time

import pytest

from llmlesson import cli
from llmlesson.batching.trace import POLICIES, Arrival, random_trace
from llmlesson.benchmark import traces


@pytest.mark.parametrize("policy", POLICIES)
def test_a_trace_is_played_in_full(tiny_folder, policy, monkeypatch):
    engine, _ = tiny_folder
    monkeypatch.setattr(engine, "eos_token_ids", frozenset(range(131)))  # the trace says how long answers are
    arrivals = random_trace(9, math.inf, 20, 8, longest=60, vocab_size=131, seed=2)
    played = traces.run_trace(engine, arrivals, policy, 40, 4, 3, 16)
    assert [len(one.tokens_at) for one in played.served] == [arrival.new_tokens for arrival in arrivals]
    assert [one.request.ids for one in played.served] == [list(arrival.ids) for arrival in arrivals]
    assert all(one.tokens_at == sorted(one.tokens_at) for one in played.served)
    summary = played.summary()
    assert summary.counts.prompt_tokens == sum(len(arrival.ids) for arrival in arrivals)
    assert summary.seconds == pytest.approx(sum(report.seconds for report in played.reports))
    assert len(engine.eos_token_ids) == 131


def test_the_clock_is_the_one_asked_for(tiny_folder, monkeypatch):
    engine, _ = tiny_folder
    ticks = iter(range(10**6))
    monkeypatch.setitem(traces.CLOCKS, "cpu", lambda: float(next(ticks)))
    played = traces.run_trace(engine, [Arrival(0.0, (5, 6), 3)], "continuous", clock="cpu")
    assert played.served[0].tokens_at == [1.0, 2.0, 3.0]
    assert traces.CLOCKS["wall"] is time.perf_counter


def test_the_command_prints_a_table_or_json(tiny_folder, tmp_path, capsys):
    _, folder = tiny_folder
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,prompt_tokens,new_tokens\n0,9,4\n0,5,3\n", encoding="utf-8")
    command = ["bench", "--model", str(folder), "--trace"]
    assert cli.main([*command, str(trace), "--cpu-time"]) == 0
    out = capsys.readouterr().out
    for policy in POLICIES:
        assert f"| {policy} " in out
    assert "CPU seconds" in out
    assert cli.main([*command, "--requests", "3", "--rate", "100", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content) == list(POLICIES)
    for numbers in content.values():
        assert numbers["counts"]["preempted"] == 0
        assert numbers["first_token"]["mean"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--trace", "none.csv"], "can't be read"), (["--trace", "--requests", "0"], "more than 0")],
)
def test_wrong_traces_are_a_sentence(tiny_folder, arguments, message, capsys):
    assert cli.main(["bench", "--model", str(tiny_folder[1]), *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_trace_that_can_not_fit_is_a_sentence(tiny_folder, tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,prompt_tokens,new_tokens\n0,300,4\n", encoding="utf-8")
    assert cli.main(["bench", "--model", str(tiny_folder[1]), "--trace", str(trace)]) == 1
    assert "at most 256" in capsys.readouterr().err
