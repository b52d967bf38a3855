from __future__ import annotations

from types import SimpleNamespace

import pytest

from llmlesson.doctor import processor
from llmlesson.limits import Memory

GB = 10**9


@pytest.mark.parametrize(
    ("usable", "omp", "status", "words"),
    [
        (8, None, "ok", "8 CPUs"),
        (1, None, "ok", "1 of 8 CPUs (a container's quota"),
        (2, "2", "ok", "OMP_NUM_THREADS sets 2 threads"),
        (2, "8", "warning", "OMP_NUM_THREADS=8 is too many for 2"),
        (2, "4,2", "warning", "OMP_NUM_THREADS=4,2"),
        (2, "many", "ok", "the best number"),
    ],
)
def test_threads_against_cpus(monkeypatch, usable, omp, status, words):
    monkeypatch.setattr(processor, "usable_cpus", lambda: usable)
    monkeypatch.setattr(processor.os, "cpu_count", lambda: 8)
    if omp is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", omp)
    finding = processor.processor()
    assert finding.status == status
    assert words in finding.what
    assert ("OMP_NUM_THREADS" in finding.mend) == (status == "warning")


@pytest.mark.parametrize(
    ("total", "free", "limited", "own", "status", "what", "mend"),
    [
        (16, 8, False, 0, "ok", "8.0 of 16.0 GB free", ""),
        (16, 1.4, False, 0, "warning", "1.4 of", "shut down other kernels"),
        (16, 1.1, False, 0, "problem", "1.1 of", "shut down other kernels"),
        (2, 1.7, True, 0, "ok", "A container's limit applies", ""),
        (2, 0.9, True, 0, "problem", "A container's limit applies", "shut down other kernels"),
        (1.3, 1.3, True, 0, "warning", "A container's limit applies", "2 GB or more"),
        (1, 1, True, 0, "problem", "A container's limit applies", "2 GB or more"),
        (2, 0.8, True, 1, "ok", "1.8 of 2.0", ""),  # this process is the one that holds the model
    ],
)
def test_memory_against_need(monkeypatch, total, free, limited, own, status, what, mend):
    monkeypatch.setattr(processor, "usable_memory", lambda: Memory(int(total * GB), int(free * GB), limited))
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=own * GB))
    monkeypatch.setattr("psutil.Process", lambda: process)
    finding = processor.memory()
    assert finding.status == status
    assert what in finding.what
    assert mend in finding.mend
