"""Engines small and real, and a count of the widgets that are open."""

from __future__ import annotations

import pytest
import torch
from files import tiny_model
from ipywidgets.widgets.widget import _instances

import llmlesson
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.files import gguf_model
from llmlesson.files.fetch import ensure_default_model


@pytest.fixture(scope="session")
def tiny_engine(tmp_path_factory):
    """Two layers with random weights, a byte-level tokenizer, a chat template and a context of 128 tokens."""
    folder = tmp_path_factory.mktemp("tiny_engine")
    tiny_model.write_gguf(folder / "tiny.gguf")
    model = folder / "model"
    model.mkdir()
    gguf_model.convert(folder / "tiny.gguf", model)
    engine = llmlesson.load(model, device="cpu")
    # Random weights of size one give scores so far apart that sampling has no choice.
    engine.model.norm = engine.model.norm * 0.02
    return engine


@pytest.fixture(scope="session")
def real_tokenizer():
    """The default model's."""
    return Tokenizer(ensure_default_model())


@pytest.fixture
def live_widgets():
    """live_widgets() -> how many widgets more than at the start are open."""
    before = len(_instances)
    return lambda: len(_instances) - before


@pytest.fixture
def bits():
    """bits(cache) -> K and V of all layers, copied, to be compared bit for bit."""

    def copied(cache):
        layers = range(cache.num_layers)
        return torch.stack([torch.stack((cache.keys(i), cache.values(i))) for i in layers]).clone()

    return copied
