"""The record of a short training after KV heads were merged."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def recorded() -> dict[str, Any]:
    """What `bench/uptraining.py` measured: how it was done, and in "runs" the measurements by number of KV heads."""
    text = files("llmlesson.lessons").joinpath("data/uptraining.json").read_text("utf-8")
    record: dict[str, Any] = json.loads(text)
    return record
