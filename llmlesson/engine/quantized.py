"""Which matrices of a model are stored with fewer bits, how, and how many bytes that takes."""

from __future__ import annotations

import torch
from torch import Tensor

from llmlesson.engine.int4 import GROUP, Int4Matrix, dequantize, kernel_is_fast, quantize
from llmlesson.engine.int8 import Int8Matrix

Matrix = Tensor | Int8Matrix | Int4Matrix
QUANTIZED = ("int8", "int4")  # what `llmlesson.load` takes as a dtype besides floats


def stored(matrix: Tensor, quantized: str | None, head: bool = False) -> Matrix:
    """A matrix [in, out] as a model with this kind of weights keeps it: `quantized` is None, "int8" or "int4".

    Without a fast 4-bit kernel, "int4" gives floats that hold the 4-bit values: the same answers, but nothing saved.
    """
    if _takes_int4(matrix.shape[0], quantized, head):
        return Int4Matrix(matrix) if kernel_is_fast() else dequantize(*quantize(matrix.T)).T.contiguous()
    return Int8Matrix(matrix) if quantized else matrix


def nbytes_of(inputs: int, outputs: int, dtype: torch.dtype, quantized: str | None, head: bool = False) -> int:
    """Bytes of a matrix [in, out] kept by `stored`; `dtype` is that of a matrix which is not quantized."""
    if _takes_int4(inputs, quantized, head):
        return Int4Matrix.nbytes_of(inputs, outputs) if kernel_is_fast() else 4 * inputs * outputs
    return Int8Matrix.nbytes_of(inputs, outputs) if quantized else inputs * outputs * dtype.itemsize


def _takes_int4(inputs: int, quantized: str | None, head: bool) -> bool:
    """The head stays in 8 bits: with 4, the default model chooses another token a fifth of the time. So does a matrix
    that can't be cut into whole groups."""
    return quantized == "int4" and not head and inputs % GROUP == 0
