from __future__ import annotations

import pytest
import torch
from engine import tiny

import llmlesson


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory):
    """tiny_pair(name) -> (our engine, the transformers model) with the same random weights."""
    pairs = {}

    def get(name):
        if name not in pairs:
            folder = tmp_path_factory.mktemp(name)
            reference = tiny.make(name, folder)
            pairs[name] = llmlesson.load(folder), reference
        return pairs[name]

    return get


@pytest.fixture(scope="session")
def real():
    """The default model in float32."""
    return llmlesson.load(device="cpu")


@pytest.fixture
def ids():
    """ids(n) -> n random token ids of the tiny models."""
    generator = torch.Generator().manual_seed(7)
    return lambda n: torch.randint(3, 131, (n,), generator=generator).tolist()
