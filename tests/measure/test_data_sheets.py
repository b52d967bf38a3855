"""Peaks of cards: those of the table of GPUs, and what follows from them."""

from __future__ import annotations

import pytest
import torch

from llmlesson.measure import cost
from llmlesson.measure.data_sheets import H100, T4
from llmlesson.sizing import get_gpu


@pytest.mark.parametrize(("card", "name"), [(T4, "T4-16GB"), (H100, "H100-80GB")])
def test_bandwidth_and_memory_agree_with_the_table_of_gpus(card, name):
    assert card.bytes_per_second == get_gpu(name).bandwidth
    assert card.memory_nbytes == pytest.approx(get_gpu(name).memory_nbytes, rel=0.1)


def test_the_source_states_the_peaks():
    for card in (T4, H100):
        assert f"{card.flops_per_second / 1e12:g} TFLOPS" in card.source
        assert f"{card.memory_nbytes / 1e9:g} GB" in card.source
    assert "320 GB/s" in T4.source
    assert "3.35 TB/s" in H100.source


def test_the_least_time_is_that_of_the_limit_above(real):
    assert H100.ridge == pytest.approx(295, abs=0.5)
    short, long = (cost.prefill(real.config, tokens, dtype=torch.bfloat16) for tokens in (64, 4096))
    assert H100.least_seconds(short) == short.nbytes / 3.35e12
    assert H100.least_seconds(long) == long.flops / 989e12
