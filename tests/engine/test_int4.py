"""4-bit weights: the values of the default model's own 4-bit file, and errors by measures that matter, on real text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from engine import tiny
from engine.test_int8 import TEXT
from safetensors import safe_open

import llmlesson
from llmlesson import LessonError
from llmlesson.engine import quantized
from llmlesson.engine.int4 import GROUP, Int4Matrix, dequantize, quantize
from llmlesson.engine.int8 import Int8Matrix
from llmlesson.engine.load import find_folder
from llmlesson.engine.quantized import nbytes_of, stored

needs_kernel = pytest.mark.skipif(not quantized.kernel_is_fast(), reason="needs a processor with AVX2")


def grid(outputs: int, groups: int, seed: int) -> torch.Tensor:
    """Weights [out, in] that are 4-bit values already: in each group 16 evenly spaced ones, the first and last used."""
    draw = torch.Generator().manual_seed(seed)
    integers = torch.randint(0, 16, (outputs, groups, GROUP), generator=draw)
    integers[..., 0], integers[..., 1] = 0, 15
    step, low = torch.rand(outputs, groups, 1, generator=draw) + 0.1, torch.randn(outputs, groups, 1, generator=draw)
    return (integers * step + low).flatten(1)


def test_weights_that_are_4_bit_values_come_back():
    weights = grid(48, 3, seed=1)
    again = dequantize(*quantize(weights))
    # Scale and zero are rounded to bfloat16, so by at most 2^-9 of themselves: (7 · scale + |zero|) · 2^-9 in all.
    _, scale, zero = quantize(weights)
    bound = ((7.5 * scale.float() + zero.float().abs()) * 2**-8)[..., None]
    assert ((again - weights).unflatten(1, (-1, GROUP)).abs() <= bound).all()


def test_other_weights_are_off_by_at_most_half_a_step():
    weights = torch.randn(48, 96, generator=torch.Generator().manual_seed(2))
    integers, scale, zero = quantize(weights)
    assert (integers.min(), integers.max()) == (0, 15)
    off = (dequantize(integers, scale, zero) - weights).unflatten(1, (-1, GROUP)).abs()
    assert (off <= (0.5 * scale + (8 * scale + zero.abs()) * 2**-8).float()[..., None]).all()


def test_a_group_of_equal_weights_stays_itself():
    weights = torch.full((16, 64), 0.25)
    weights[3] = 0
    assert torch.equal(dequantize(*quantize(weights)), weights)


@needs_kernel
@pytest.mark.parametrize("outputs", [16, 48, 90])  # the kernel takes multiples of 16
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_products_are_those_of_the_4_bit_values(rows, outputs):
    matrix = torch.randn(96, outputs, generator=torch.Generator().manual_seed(3))
    x = torch.randn(1, rows, 96, generator=torch.Generator().manual_seed(4))
    got, exact = x @ Int4Matrix(matrix), x @ dequantize(*quantize(matrix.T)).T
    assert (got.shape, got.dtype) == (exact.shape, torch.float32)
    assert (got - exact).norm() / exact.norm() < 0.005  # inputs and results pass through bfloat16


@needs_kernel
def test_a_row_is_the_same_to_the_last_bit_whatever_rows_are_beside_it():
    draw = torch.Generator().manual_seed(5)
    matrix, x = Int4Matrix(torch.randn(96, 90, generator=draw)), torch.randn(130, 96, generator=draw)
    alone = torch.cat([row[None] @ matrix for row in x])
    for rows in (2, 3, 4, 5, 16, 17, 33, 64, 130):
        assert torch.equal(x[:rows] @ matrix, alone[:rows])


def test_the_head_and_matrices_without_whole_groups_stay_in_8_bits():
    matrix = torch.randn(64, 48)
    assert isinstance(stored(matrix, "int4", head=True), Int8Matrix)
    assert isinstance(stored(matrix[:60], "int4"), Int8Matrix)
    assert isinstance(stored(matrix, "int8"), Int8Matrix)
    assert stored(matrix, None) is matrix


@pytest.mark.parametrize("fast", [pytest.param(True, marks=needs_kernel), False])
@pytest.mark.parametrize("kind", [None, *quantized.QUANTIZED])
@pytest.mark.parametrize("outputs", [48, 50])
def test_bytes_are_those_held(monkeypatch, kind, outputs, fast):
    monkeypatch.setattr(quantized, "kernel_is_fast", lambda: fast)
    for head in (False, True):
        for inputs in (64, 60):
            matrix = stored(torch.randn(inputs, outputs), kind, head)
            assert matrix.nbytes == nbytes_of(inputs, outputs, torch.float32, kind, head)


def test_the_default_models_matrices_are_the_values_of_its_file():
    """The file has 4 bits a weight (Q4_1): each matrix of a layer comes back within the rounding of bfloat16."""
    path = find_folder("smollm2-135m") / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        names = [name for name in file.keys() if "proj" in name]  # noqa: SIM118
        assert len(names) == 30 * 7
        for name in names[::4]:
            weights = file.get_tensor(name).float()
            integers, scale, zero = quantize(weights)
            off = (dequantize(integers, scale, zero) - weights).unflatten(1, (-1, GROUP)).abs()
            bound = (16 * scale.float() + zero.float().abs()) * 2**-8
            assert (off <= bound[..., None]).all(), name


@pytest.fixture(scope="module")
def int4():
    return llmlesson.load(dtype="int4", device="cpu")


def test_error_on_real_text(real, int4):
    assert "int4" in repr(int4)
    ids = real.tokenizer.encode(TEXT)
    exact, rounded = real.logits(ids).log_softmax(-1), int4.logits(ids).log_softmax(-1)
    divergence = (exact.exp() * (exact - rounded)).sum(-1)  # KL, by position
    assert divergence.mean() < 0.005
    following = torch.tensor(ids[1:])[:, None]
    perplexity, of_int4 = ((-x[:-1].gather(1, following)).mean().exp() for x in (exact, rounded))
    assert abs(of_int4 / perplexity - 1) < 0.02
    # Decode agrees with prefill.
    cache, _ = int4.prefill(ids[:-8])
    stepwise = torch.cat([int4.logits([token], cache) for token in ids[-8:]]).log_softmax(-1)
    assert (rounded[-8:].exp() * (rounded[-8:] - stepwise)).sum(-1).mean() < 0.005


@needs_kernel
def test_it_takes_less_than_a_fifth_of_the_memory(real, int4):
    assert int4.model.nbytes < 0.18 * real.model.nbytes


def test_a_processor_without_the_kernel_gets_the_same_values_as_floats(tmp_path, monkeypatch):
    """torch is told to use no vector instructions, as on a processor that has none."""
    monkeypatch.setitem(tiny.MODELS, "even", ("LlamaConfig", dict(hidden_size=96, intermediate_size=64)))
    tiny.make("even", tmp_path)
    code = (
        "import sys, torch, llmlesson\n"
        "from llmlesson.engine.int4 import dequantize, quantize\n"
        "load = lambda dtype: llmlesson.load(sys.argv[1], 'cpu', dtype).model.layers[1]\n"
        "quantized, plain = load('int4'), load('float32')\n"
        "for name in ('qkv', 'out', 'gate_up', 'down'):\n"
        "    assert torch.equal(getattr(quantized, name), dequantize(*quantize(getattr(plain, name).T)).T), name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "saves neither time nor memory" in done.stderr


def test_only_on_a_cpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(LessonError, match="'int4' works on a CPU only"):
        llmlesson.load(device="cuda", dtype="int4")
