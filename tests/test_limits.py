"""CPUs and memory that the machine lends: control groups of both versions, nested and in containers."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from llmlesson import limits

GB = 10**9
V1_UNLIMITED = "9223372036854771712"


@pytest.fixture
def host(monkeypatch, tmp_path):
    """host(groups, files): 16 cores, 8 GB of memory with 6 GB free, and a cgroup folder with these files."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=8 * GB, available=6 * GB))
    monkeypatch.setattr(limits, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "own")

    def set_up(groups, files):
        (tmp_path / "own").write_text(groups)
        for name, content in files.items():
            file = tmp_path / "cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")

    return set_up


V1_CPU = "4:cpu,cpuacct:/\n"
UNIT = "0::/system.slice/jupyter-ada.service\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {}, 16),
        ("0::/\n", {"cpu.max": "max 100000"}, 16),
        ("0::/\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "150000 100000"}, 2),
        ("0::/\n", {"cpu.max": "10000 100000"}, 1),
        ("0::/\n", {"cpu.max": "6400000 100000"}, 16),
        ("0::/\n", {"cpu.max": "nonsense"}, 16),
        (UNIT, {"system.slice/jupyter-ada.service/cpu.max": "300000 100000"}, 3),
        (UNIT, {"system.slice/cpu.max": "200000 100000", f"{UNIT[4:-1]}/cpu.max": "max 100000"}, 2),
        (UNIT, {"system.slice/cpu.max": "200000 100000", f"{UNIT[4:-1]}/cpu.max": "300000 100000"}, 2),
        ("0::/docker/on-the-host\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/../../elsewhere\n", {"cpu.max": "200000 100000"}, 2),
        (V1_CPU, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        (V1_CPU, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ("5:memory:/\n", {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 16),
    ],
    ids=str,
)
def test_cpus_by_quota_and_affinity(host, groups, files, expected):
    host(groups, files)
    assert limits.usable_cpus() == expected


def version_1(limit, used, stat=""):
    names = ("limit_in_bytes", "usage_in_bytes", "stat")
    return {f"memory/memory.{name}": value for name, value in zip(names, (limit, used, stat), strict=True)}


def version_2(limit, used, stat="", folder=""):
    return {f"{folder}memory.max": limit, f"{folder}memory.current": used, f"{folder}memory.stat": stat}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {}, (8 * GB, 6 * GB, False)),
        ("0::/\n", version_2("max", GB), (8 * GB, 6 * GB, False)),
        ("0::/\n", version_2(2 * GB, GB), (2 * GB, GB, True)),
        ("0::/\n", version_2(2 * GB, 3 * GB), (2 * GB, 0, True)),
        ("0::/\n", version_2(2 * GB, GB, f"inactive_file {GB // 4}\nactive_file {GB // 4}"), (2 * GB, 1.5 * GB, True)),
        ("0::/\n", version_2(64 * GB, GB), (8 * GB, 6 * GB, False)),
        ("0::/\n", version_2(64 * GB, 63 * GB), (8 * GB, GB, True)),
        (UNIT, version_2(2 * GB, GB, folder=f"{UNIT[4:-1]}/"), (2 * GB, GB, True)),
        ("5:memory:/\n", version_1(V1_UNLIMITED, GB), (8 * GB, 6 * GB, False)),
        ("5:memory:/\n", version_1(2 * GB, GB, f"total_inactive_file {GB // 2}"), (2 * GB, 1.5 * GB, True)),
        ("5:memory:/docker/on-the-host\n", version_1(2 * GB, GB), (2 * GB, GB, True)),
    ],
    ids=str,
)
def test_memory_by_control_group(host, groups, files, expected):
    host(groups, files)
    memory = limits.usable_memory()
    assert (memory.total, memory.free, memory.limited) == expected


def test_a_system_without_control_groups(host):
    assert limits.usable_cpus() == 16
    assert limits.usable_memory() == limits.Memory(8 * GB, 6 * GB, False)


def test_this_machine():
    memory = limits.usable_memory()
    assert 0 < memory.free < memory.total
    assert 1 <= limits.usable_cpus() <= os.cpu_count()
