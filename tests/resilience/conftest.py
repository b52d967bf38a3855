"""Leaves out nbval's run of the lessons where the tests here run the same lessons and compare the same outputs."""

from pathlib import Path

import pytest

from resilience.hard import apart

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _, impossible = apart("--net")
    if impossible:
        return
    here = {
        item.callspec.params["name"]
        for item in items
        if isinstance(item, pytest.Function) and item.originalname == "test_lesson_under_hard_conditions"
    }
    twice = [item for item in items if item.path.parent == NOTEBOOKS and item.path.name in here]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in twice]
