"""The thread count follows what the machine lends, then what is faster."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from llmlesson.engine import threads


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cpus(monkeypatch):
    """cpus(n): this process may use n of them."""
    return lambda count: monkeypatch.setattr(threads, "usable_cpus", lambda: count)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_a_process_on_one_core_uses_one_thread():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import llmlesson, torch;"
        "llmlesson.load(); print(torch.get_num_threads())"
    )
    env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "1\n"


@pytest.mark.parametrize("best", [1, 2, 4, 8])
def test_the_fastest_count_is_taken(cpus, monkeypatch, best):
    cpus(8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    trial = lambda: time.sleep(0.001 if torch.get_num_threads() == best else 0.03)  # noqa: E731
    assert threads.choose_threads(trial) == torch.get_num_threads() == best


def test_the_users_setting_stays(cpus, monkeypatch):
    cpus(8)
    torch.set_num_threads(3)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.choose_threads(lambda: pytest.fail("no trial is needed")) == 3
