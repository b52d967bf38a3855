from __future__ import annotations

import pytest
from engine import tiny

import llmlesson


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A tiny engine and the folder that it was loaded from."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny.make("gqa", folder)
    return llmlesson.load(folder), folder
