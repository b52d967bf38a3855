"""Servers over real sockets: one that keeps time, and one with a small random model. All are stopped at the end."""

from __future__ import annotations

import httpx
import pytest
from files import tiny_model

import llmlesson
from llmlesson.batching.batch_engine import BatchEngine
from llmlesson.files import gguf_model
from llmlesson.server import Server
from llmlesson.server.paced import PacedBackend


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """Two layers with random weights, a byte-level tokenizer, a chat template and a context of 128 tokens."""
    folder = tmp_path_factory.mktemp("served")
    tiny_model.write_gguf(folder / "tiny.gguf")
    model = folder / "tiny"
    model.mkdir()
    gguf_model.convert(folder / "tiny.gguf", model)
    engine = llmlesson.load(model, device="cpu")
    engine.model.norm = engine.model.norm * 0.02  # so that sampling has a choice
    return engine


@pytest.fixture
def batch(engine):
    return BatchEngine(engine, blocks=64)


@pytest.fixture
def server(batch):
    with Server(batch) as server:
        yield server


@pytest.fixture
def paced():
    """paced(token_seconds, **options) -> a running server that keeps time."""
    running = []

    def start(token_seconds=0.01, slots=8, **options):
        running.append(Server(PacedBackend(token_seconds, slots=slots), **options).start())
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        yield client
