"""PyTorch and GPUs: what torch and NVIDIA's tool say is made up, the processes that say it are real."""

from __future__ import annotations

import sys

import pytest

from llmlesson.doctor import gpu, torch_probe
from llmlesson.doctor.gpu import Driver

CPU_BUILD = {"version": "2.13.0+cpu", "cuda": None, "gpus": [], "architectures": [], "warnings": []}
CUDA_BUILD = CPU_BUILD | {"version": "2.13.0+cu130", "cuda": "13.0"}
ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
DEVICE = {"name": "NVIDIA L4", "free": 20 * 10**9, "total": 24 * 10**9, "capability": [8, 9]}
DRIVER = Driver("NVIDIA L4", "580.82")


def on_gpu(**changes):
    return CUDA_BUILD | {"gpus": [DEVICE | changes], "architectures": ARCHITECTURES}


@pytest.mark.parametrize(
    ("facts", "driver", "status", "words"),
    [
        (CPU_BUILD, None, "ok", "the CPU is enough"),
        (CUDA_BUILD, None, "ok", "no NVIDIA GPU found"),
        (CUDA_BUILD, Driver(), "ok", "no NVIDIA GPU found"),
        (CPU_BUILD, DRIVER, "warning", "this machine has NVIDIA L4, but this PyTorch is a build for CPUs"),
        (CPU_BUILD, Driver(error="couldn't communicate"), "warning", "doesn't respond: couldn't communicate"),
        (
            CUDA_BUILD | {"warnings": ["driver is too old"]},
            DRIVER,
            "warning",
            "for CUDA 13.0 can't use NVIDIA L4: driver is too old",
        ),
        (CUDA_BUILD, DRIVER, "warning", "gives no reason (driver 580.82)"),
        (CUDA_BUILD | {"gpu_error": "RuntimeError: busy"}, DRIVER, "problem", "fails on it. RuntimeError: busy"),
        (on_gpu(), DRIVER, "ok", "NVIDIA L4, 20.0 of 24.0 GB free, driver 580.82"),
        (on_gpu(), None, "ok", "NVIDIA L4, 20.0 of 24.0 GB free"),
        (on_gpu(free=10**9), DRIVER, "warning", "1.0 of 24.0 GB free"),
        (on_gpu(capability=[6, 1]), DRIVER, "problem", "no code for its compute capability 6.1"),
    ],
)
def test_gpu(monkeypatch, facts, driver, status, words):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    finding = gpu.gpu(facts, driver)
    assert finding.status == status
    assert words in finding.what
    assert bool(finding.mend) == (status != "ok")
    if status == "problem":  # the way out that always works
        assert "CUDA_VISIBLE_DEVICES" in finding.mend


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_gpu_that_the_user_hides_is_fine(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert gpu.gpu(CUDA_BUILD, DRIVER).status == "ok"


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (ARCHITECTURES, (7, 0), False),
        (ARCHITECTURES, (7, 5), True),
        (ARCHITECTURES, (8, 9), True),  # by sm_86
        (["sm_89"], (8, 6), False),
        (["sm_90"], (10, 0), False),
        (["sm_90a"], (9, 0), True),
        (["sm_90a"], (9, 1), False),
        (["compute_90"], (12, 0), True),
        (["compute_90"], (8, 9), False),
        (["gfx942"], (9, 4), True),
    ],
)
def test_architectures(architectures, capability, runs):
    assert gpu.runs_on(architectures, capability) == runs


@pytest.mark.parametrize(
    ("facts", "status", "words", "mend"),
    [
        (CPU_BUILD, "ok", "2.13.0+cpu, for CPUs", ""),
        (CUDA_BUILD, "ok", "for CUDA 13.0", ""),
        ({"error": "OSError: libgomp.so.1: cannot open shared object file"}, "problem", "libgomp", "libgomp1"),
        ({"error": "ImportError: odd"}, "problem", "ImportError: odd", "--force-reinstall torch"),
        (CPU_BUILD | {"engine_error": "ImportError: numpy"}, "problem", "engine can't", "--force-reinstall -r"),
        (CPU_BUILD | {"engine_error": "ModuleNotFoundError: No module named 'x'"}, "problem", "'x'", "pip install -r"),
    ],
)
def test_pytorch(facts, status, words, mend):
    finding = gpu.pytorch(facts)
    assert finding.status == status
    assert words in finding.what
    assert mend in finding.mend


def test_a_missing_dll_on_windows(monkeypatch):
    monkeypatch.setattr(gpu.sys, "platform", "win32")
    error = 'OSError: [WinError 126] Error loading "c10.dll" or one of its dependencies.'
    assert "VCRedist" in gpu.pytorch({"error": error}).mend


def torch_that(tmp_path, monkeypatch, does):
    (tmp_path / "torch.py").write_text(does)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("raise OSError('libgomp.so.1: cannot open')", "OSError: libgomp.so.1"),
        ("import os; os.abort()", "exited with status"),
        ("import sys; sys.exit('no')", "exited with status 1. no"),
        ("ones = 3", "TypeError"),
    ],
)
def test_a_broken_torch_does_not_end_the_doctor(tmp_path, monkeypatch, does, words):
    torch_that(tmp_path, monkeypatch, does)
    [finding] = gpu.torch_and_gpu()
    assert finding.status == "problem"
    assert words in finding.what


def test_a_torch_that_hangs(tmp_path, monkeypatch):
    torch_that(tmp_path, monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(gpu, "PROBE_SECONDS", 1)
    [finding] = gpu.torch_and_gpu()
    assert "took longer than 1 s" in finding.what


def test_a_file_of_the_same_name_beside_the_learner_is_not_torch(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('the wrong file')")
    monkeypatch.chdir(tmp_path)
    probe = tmp_path / "probe.py"
    probe.write_text("import json, sys; print('noise'); print(json.dumps({'path': sys.path}))")
    monkeypatch.setattr(torch_probe, "__file__", str(probe))
    assert str(tmp_path) not in gpu.probe_apart()["path"]


def test_what_torch_says_of_itself():
    import torch

    facts = torch_probe.probe()
    assert (facts["version"], facts["cuda"]) == (torch.__version__, torch.version.cuda)
    assert "error" not in facts
    assert "engine_error" not in facts
    assert len(facts["gpus"]) == torch.cuda.device_count()


def test_warnings_and_errors_of_cuda_are_facts(monkeypatch):
    import warnings

    import torch

    def available():
        warnings.warn("The NVIDIA driver is too old\nand more", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", available)
    assert torch_probe.probe()["warnings"] == ["The NVIDIA driver is too old"]

    def fails(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", fails)
    assert torch_probe.probe()["gpu_error"] == "RuntimeError: out of luck"


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for nvidia-smi is a shell script")
@pytest.mark.parametrize(
    ("prints", "status", "expected"),
    [
        ("NVIDIA L4, 580.82\nNVIDIA L4, 580.82", 0, Driver("NVIDIA L4", "580.82")),
        ("No devices were found", 6, Driver()),
        ("Failed to initialize NVML: Driver/library version mismatch\nmore", 18, None),
        ("", 9, Driver(error="nvidia-smi exited with status 9")),
    ],
)
def test_driver(tmp_path, monkeypatch, prints, status, expected):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{prints}'\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = expected or Driver(error=prints.splitlines()[0])
    assert gpu.find_driver() == expected


def test_no_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.find_driver() is None
