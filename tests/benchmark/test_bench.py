"""The benchmark's rules on contenders that are made up, and the command as a user runs it, on a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from benchmark.reports import PEAKS

from llmlesson import LessonError
from llmlesson.benchmark import bench
from llmlesson.measure import cost, roofline

COMMAND = [sys.executable, "-m", "llmlesson.cli", "bench"]


@pytest.fixture
def calls():
    return []


@pytest.fixture
def contender(calls):
    """contender(name) notes its calls and takes a second for everything."""
    return lambda name: lambda prompts, steps: calls.append((name, steps)) or [float(i) for i in range(1, steps + 2)]


def test_contenders_take_turns_after_a_run_to_warm_up(calls, contender):
    arrivals = bench.measure({name: contender(name) for name in "abc"}, [[1, 2]], [])
    assert [name for name, _ in calls] == list("abc" + "abcbcacab" * 2 + "abc")
    assert [len(runs) for runs in arrivals.values()] == [bench.MOST] * 3


def test_slow_machines_stop_at_the_fewest_runs(monkeypatch, contender):
    monkeypatch.setattr(bench, "ENOUGH", 0.0)
    assert len(bench.measure({"a": contender("a")}, [[1, 2]], [])["a"]) == bench.FEWEST


def test_a_contender_that_fails_is_left_out_with_its_reason(contender):
    def broken(prompts, steps):
        raise RuntimeError("no compiler\nand a long trace")

    left_out = []
    arrivals = bench.measure({"broken": broken, "a": contender("a")}, [[1, 2], [3, 4]], left_out)
    assert list(arrivals) == ["a"]
    assert left_out == ["broken, 2 tokens, batch size 2: no compiler"]


def test_a_row_knows_its_work(tiny_pair):
    engine, _ = tiny_pair("gqa")
    runs = [[0.5, 0.6, 0.8], [0.7, 0.8, 0.9]]
    cached = bench.row(bench.OURS, engine, PEAKS, 32, 4, runs)
    assert cached.first_sample.seconds == (0.5, 0.7)
    assert cached.step_sample.seconds == pytest.approx((0.1, 0.2, 0.1, 0.1))
    assert cached.tokens_per_second == pytest.approx(40)
    assert (cached.first.cost.tokens, cached.first.cost.batch) == (32, 4)
    assert (cached.step.cost.tokens, cached.step.cost.cached) == (1, 32 + bench.STEPS // 2)
    again = bench.row(bench.NO_CACHE, engine, PEAKS, 32, 1, runs)
    assert (again.step.cost.tokens, again.step.cost.cached) == (33, 0)
    for name, quantized in ((bench.INT8, "int8"), (bench.INT4, "int4")):
        smaller = bench.row(name, engine, PEAKS, 32, 4, runs)
        assert smaller.step.cost == cost.decode(engine.config, 32 + bench.STEPS // 2, batch=4, quantized=quantized)


@pytest.mark.parametrize(
    ("prompts", "batches", "message"),
    [([300], [1], "300 tokens can't be measured"), ([0], [1], "0 tokens"), ([8], [0], "whole numbers of at least 1")],
)
def test_sizes_that_do_not_fit_are_refused_before_any_work(tiny_pair, monkeypatch, prompts, batches, message):
    engine, _ = tiny_pair("gqa")
    monkeypatch.setattr(roofline, "measure", lambda *args, **kwargs: pytest.fail("work has begun"))
    with pytest.raises(LessonError, match=message):
        bench.run(engine, prompts, batches)


@pytest.fixture(scope="module")
def outcome(tiny_folder, tmp_path_factory):
    """(process, JSON, plot) of one run of the command."""
    _, folder = tiny_folder
    home = tmp_path_factory.mktemp("home")  # measured limits are kept here, not in the user's own
    plot = home / "plot.html"
    sizes = ["--prompt-tokens", "6", "20", "--batch", "1", "3"]
    process = subprocess.run(
        [*COMMAND, "--model", str(folder), *sizes, "--plot", str(plot), "--json"],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "LLMLESSON_HOME": str(home)},
    )
    assert process.returncode == 0, process.stderr
    return process, json.loads(process.stdout), plot.read_text(encoding="utf-8")


def test_the_command_measures_everyone_everywhere(outcome):
    _, content, _ = outcome
    everyone = [bench.OURS, bench.DYNAMIC, bench.STATIC, bench.NO_CACHE, bench.INT8, bench.INT4]
    expected = [(length, 1, name) for length in (6, 20) for name in everyone]
    expected += [(6, 3, name) for name in everyone if name != bench.NO_CACHE]
    assert [(row["prompt_tokens"], row["batch"], row["contender"]) for row in content["rows"]] == expected
    assert content["left_out"] == []
    for row in content["rows"]:
        steps = 1 if row["contender"] == bench.NO_CACHE else bench.STEPS
        runs = len(row["first_token"]["seconds"])
        assert bench.FEWEST <= runs <= bench.MOST
        assert len(row["step"]["seconds"]) == steps * runs
        assert all(seconds > 0 for seconds in row["first_token"]["seconds"] + row["step"]["seconds"])


def test_the_plot_needs_no_network(outcome):
    _, _, plot = outcome
    assert "plotly.js v" in plot
    assert 'src="http' not in plot


def test_stderr_holds_progress_and_no_warning(outcome):
    process, _, _ = outcome
    assert process.stderr.splitlines() == [
        "Measuring the limits of this device",
        "Loading the same weights into transformers",
        "Loading them as int8",
        "Loading them as int4",
        "Prompts of 6 tokens, batch size 1",
        "Prompts of 20 tokens, batch size 1",
        "Prompts of 6 tokens, batch size 3",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "no-such-folder/plot.html"], "no folder"),
        (["--model", "no-such-model"], "no model or folder"),
    ],
)
def test_errors_are_a_sentence_and_status_1(arguments, message):
    process = subprocess.run([*COMMAND, *arguments], capture_output=True, encoding="utf-8", timeout=120)
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr
