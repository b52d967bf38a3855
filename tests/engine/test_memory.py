"""Out of memory: how much was needed, and what to reduce."""

from __future__ import annotations

import pytest
import torch

import llmlesson
from llmlesson import LessonError


@pytest.fixture
def no_memory(monkeypatch):
    """no_memory(error): from now on, allocating on the CPU fails with it."""

    def fail(error):
        def refuse(*args, **kwargs):
            raise error

        monkeypatch.setattr(torch, "zeros", refuse)
        monkeypatch.setattr(torch, "empty", refuse)

    return fail


ERRORS = [RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), torch.OutOfMemoryError("CUDA out")]


@pytest.mark.parametrize("error", ERRORS)
def test_a_cache_that_does_not_fit(tiny_pair, no_memory, error):
    engine = tiny_pair("gqa")[0]
    no_memory(error)
    with pytest.raises(LessonError, match=r"cache for 100 positions needs 48,000 bytes.*fewer positions"):
        engine.new_cache(100)  # 100 · 2 · 3 layers · 2 heads · 10 values · 4 bytes


@pytest.mark.parametrize("error", ERRORS)
def test_weights_that_do_not_fit(no_memory, tiny_pair, error):
    folder = tiny_pair("gqa")[0].name
    count = sum(parameter.numel() for parameter in tiny_pair("gqa")[1].parameters())
    no_memory(error)
    with pytest.raises(LessonError, match=rf"needs {4 * count:,} bytes.*smaller dtype"):
        llmlesson.load(folder)


def test_other_errors_stay_what_they_are(tiny_pair, no_memory):
    engine = tiny_pair("gqa")[0]
    no_memory(RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        engine.new_cache(100)


def test_a_real_allocation_that_fails(real):
    storage = {"num_hidden_layers": 10_000_000, "max_position_embeddings": 10**9}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "config", type("Huge", (), {**vars(real.config), **storage}))
        with pytest.raises(LessonError, match="Out of memory"):
            real.new_cache(10**9)  # 10^9 positions of one layer are more than any machine has
