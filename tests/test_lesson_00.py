"""Numbers that lesson 00 and the README state in words: they are those of the model and of its download."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmlesson.files.download import MB, SMOLLM2_135M
from llmlesson.files.fetch import ensure_default_model

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text(encoding="utf-8"))
LESSON = "\n".join("".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "markdown")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [LESSON, README], ids=["lesson", "README"])
def test_sizes_of_download_and_folder(text):
    assert f"about {SMOLLM2_135M.wheel_size / MB:.0f} MB" in text
    assert f"{SMOLLM2_135M.converted_size / MB:.0f} MB on disk" in text


def test_number_of_parameters():
    from safetensors import safe_open

    with safe_open(ensure_default_model() / "model.safetensors", "np") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    parameters = sum(
        rows * columns for rows, columns in (shape if len(shape) == 2 else (*shape, 1) for shape in shapes)
    )
    assert f"{parameters / 1e6:.0f} million *parameters*" in LESSON


def test_the_commands():
    for command in (
        "pip install uv && uv pip install --torch-backend=auto -r requirements.txt && "
        "jupyter lab notebooks/00_start_here.ipynb",
        "pip install -r requirements.txt && jupyter lab notebooks/00_start_here.ipynb",
        "pip install -r requirements-dev.txt && pytest",
    ):
        assert f"\n{command}\n" in README
