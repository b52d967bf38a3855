from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from benchmark.reports import PEAKS

from llmlesson.measure import cost, roofline


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMLESSON_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def small(monkeypatch):
    """A quick measurement."""
    monkeypatch.setitem(roofline.MATMUL_SIZE, "cpu", 64)


def test_decode_lies_under_the_memory_limit_and_prefill_under_the_other(real):
    assert PEAKS.ridge == 5
    step, prompt = cost.decode(real.config, 100), cost.prefill(real.config, 100)
    decode = PEAKS.place(step, 0.05)
    assert decode.limit == "memory"
    assert decode.bytes_per_second == step.nbytes / 0.05
    assert decode.mbu == step.nbytes / 0.05 / 20e9
    assert decode.least_seconds == step.nbytes / 20e9
    prefill = PEAKS.place(prompt, 0.5)
    assert prefill.limit == "compute"
    assert prefill.flops_per_second == prompt.flops / 0.5
    assert prefill.mfu == prompt.flops / 0.5 / 100e9
    assert prefill.least_seconds == prompt.flops / 100e9


def test_the_time_that_the_limits_allow_uses_the_whole_limit(real):
    step = cost.decode(real.config, 100)
    assert PEAKS.place(step, PEAKS.place(step, 1.0).least_seconds).mbu == pytest.approx(1)


def test_measured_peaks_follow_from_time_and_size(monkeypatch, small):
    monkeypatch.setattr(roofline, "_best", lambda device, work: (work(), 0.5)[1])
    peaks = roofline.measure(torch.device("cpu"), torch.float32, 8_000_004)
    assert peaks.read_nbytes == 8_000_000  # whole int64 values
    assert peaks.bytes_per_second == 16_000_000
    assert peaks.flops_per_second == 2 * 64**3 / 0.5
    assert peaks.threads == torch.get_num_threads()


def test_the_best_of_the_runs_counts(monkeypatch):
    class Watch:
        def __init__(self, device):
            self.count = -1

        def start(self):
            self.count = 0

        def lap(self):
            self.count += 1

        def laps(self):
            return [3.0, 1.0, 2.0][: self.count]

    monkeypatch.setattr(roofline, "Stopwatch", Watch)
    runs = []
    assert roofline._best(torch.device("cpu"), lambda: runs.append(1)) == 1.0
    assert len(runs) == roofline.REPEATS + 1  # one to warm up


def test_a_buffer_is_never_larger_than_need_be(monkeypatch, small):
    sizes = []
    monkeypatch.setattr(torch, "ones", lambda count, **kwargs: sizes.append(count) or torch.zeros(1))
    roofline.measure(torch.device("cpu"), torch.float32, 10**12)
    assert sizes == [192 * 2**20 // 8]


def test_the_best_ever_measured_counts(tiny_pair, home, small, monkeypatch):
    engine, _ = tiny_pair("gqa")
    quiet = roofline.measure_and_keep(engine)
    assert quiet.read_nbytes == cost.decode(engine.config, 0).weight_bytes // 8 * 8
    assert roofline.path().is_relative_to(home)
    measure = roofline.measure

    def disturbed(*args):
        found = measure(*args)
        return dataclasses.replace(found, bytes_per_second=1.0, flops_per_second=2 * quiet.flops_per_second)

    monkeypatch.setattr(roofline, "measure", disturbed)
    assert roofline.measure_and_keep(engine).bytes_per_second == quiet.bytes_per_second
    assert roofline.measure_and_keep(engine).flops_per_second == 2 * quiet.flops_per_second


def test_what_is_kept_is_found_without_measuring(tiny_pair, home, small, monkeypatch):
    engine, other = tiny_pair("gqa")[0], tiny_pair("mha")[0]
    assert roofline.kept(engine) is None
    limits = roofline.measure_and_keep(engine)
    monkeypatch.setattr(roofline, "measure", lambda *_: pytest.fail("measured"))
    assert roofline.kept(engine) == limits
    assert roofline.kept(other) is None


def test_other_threads_are_another_machine(tiny_pair, home, small):
    engine, _ = tiny_pair("gqa")
    before = torch.get_num_threads()
    roofline.measure_and_keep(engine)
    try:
        torch.set_num_threads(before + 1)
        assert roofline.measure_and_keep(engine).threads == before + 1
    finally:
        torch.set_num_threads(before)
    assert len(json.loads(roofline.path().read_text())) == 2


@pytest.mark.parametrize("content", ["", "[]", "{", '{"%s": {"unknown": 1}}'])
def test_an_unusable_file_is_measured_anew(tiny_pair, home, small, content):
    engine, _ = tiny_pair("gqa")
    roofline.measure_and_keep(engine)
    key = next(iter(json.loads(roofline.path().read_text())))
    roofline.path().write_text(content % key if "%s" in content else content)
    again = roofline.measure_and_keep(engine)
    assert json.loads(roofline.path().read_text())[key] == dataclasses.asdict(again)


def test_a_folder_that_cannot_be_written_is_no_error(tiny_pair, home, small):
    home.write_text("a file where the folder should be")
    engine, _ = tiny_pair("gqa")
    assert roofline.measure_and_keep(engine).bytes_per_second > 0
