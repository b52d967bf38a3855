from __future__ import annotations

import pytest
from engine import tiny
from engine.conftest import tiny_pair  # noqa: F401  (fixtures)

import llmlesson


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A tiny engine and the folder that it was loaded from."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny.make("gqa", folder)
    return llmlesson.load(folder), folder
