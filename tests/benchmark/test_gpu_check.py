"""The GPU check's own logic, on a CPU as far as that goes; the whole of it where there is a GPU."""

from __future__ import annotations

import importlib.util
import json
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import llmlesson

TOOL = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"
SPEC = importlib.util.spec_from_file_location("gpu_check", TOOL)
assert SPEC is not None
assert SPEC.loader is not None
gpu_check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gpu_check)


@pytest.fixture(scope="module")
def engine(real):
    """The first three layers of the default model, and its tokenizer: the checks find the same in them, and sooner."""
    engine = copy(real)
    engine.config = replace(real.config, num_hidden_layers=3)
    engine.model = replace(real.model, config=engine.config, layers=real.model.layers[:3])
    return engine


def test_graph_against_eager_finds_agreement_and_its_absence(engine, monkeypatch):
    monkeypatch.setattr(gpu_check, "STEPS", 12)
    result = gpu_check.graph_against_eager(engine)
    assert result["passed"]
    assert result["equal_tokens"] == 12
    logits = gpu_check.GraphedDecode.logits
    monkeypatch.setattr(gpu_check.GraphedDecode, "logits", lambda self, token: -logits(self, token))
    assert not gpu_check.graph_against_eager(engine)["passed"]


def test_parity_finds_agreement_and_its_absence(engine, monkeypatch):
    assert gpu_check.parity(engine, engine)["passed"]
    other = copy(engine)
    other.model = copy(engine.model)
    other.model.norm = engine.model.norm * 1.01
    assert not gpu_check.parity(other, engine)["passed"]


def test_batch_finds_agreement_and_its_absence(engine, monkeypatch):
    result = gpu_check.batch(engine, 3, 14, rows=(1,))
    assert (result["passed"], result["equal_answers"]) == (True, 3)
    assert result["preempted"] > 0
    generate = llmlesson.Engine.generate
    monkeypatch.setattr(
        llmlesson.Engine, "generate", lambda self, ids, **settings: generate(self, ids[:-1], **settings)
    )
    assert not gpu_check.batch(engine, 1, 2, rows=())["passed"]


def test_an_error_in_one_check_is_a_result(engine):
    def broken(engine):
        raise ZeroDivisionError("why")

    assert gpu_check.attempt(broken, engine) == {"passed": False, "error": "ZeroDivisionError: why"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_without_a_gpu_it_says_so(capsys):
    assert gpu_check.main([]) == 1
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.gpu
def test_everything_on_a_gpu(tmp_path):
    file = tmp_path / "result.json"
    assert gpu_check.main([str(file)]) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["checks"]["benchmark"]["passed"]
