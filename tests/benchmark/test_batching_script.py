"""bench/batching.py runs, at sizes at which its numbers mean nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "batching.py"
SPEC = importlib.util.spec_from_file_location("batching_script", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

PARTS = {
    "policies": lambda engine: script.policies(engine, 4, 100.0, 20, 5),
    "long_prompt": lambda engine: script.long_prompt(engine, tokens=140, context=5),
    "prefix_hit": lambda engine: script.prefix_hit(engine, 64, 8, repeats=1),
    "reserving": lambda engine: script.reserving(4096, 6),
    "steps": lambda engine: script.steps_by_rows(engine, engine, context=20, repeats=1),
    "overhead": lambda engine: script.overhead(engine, 4, 20, 2),
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_gives_a_text(part, tiny_folder):
    text = PARTS[part](tiny_folder[0])
    assert text.endswith("\n")
    assert "nan" not in text
