"""Weights as 8-bit integers: a quarter of the bytes, for a decode step that spends its time reading them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# The kernel loads inputs in whole vectors: for other sizes it reads past the end, gives inf, or crashes.
VECTOR = 32
PART = 256  # outputs that are quantized at a time, so that this takes little memory besides the result


class Int8Matrix:
    """A matrix [in, out] stored as int8 with one scale for each output, to be used as `x @ matrix`.

    weight ≈ scale · integer, with scale = max |weight| / 127 over the inputs of that output. Only weights are
    quantized; activations pass through bfloat16, in which the kernel computes.

    The kernel computes each row by itself, so a row's result is the same to the last bit whatever other rows there are.
    From some 64 rows on it would be faster (twice, at 512) to turn the weights back into floats. But that is another
    arithmetic: an answer would then depend on who else is in the batch, and on the chunks that a prompt is read in.
    """

    def __init__(self, matrix: Tensor) -> None:
        largest = torch.maximum(matrix.amax(dim=0), -matrix.amin(dim=0))
        scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny)  # [out]
        parts = zip(matrix.split(PART, dim=1), scale.split(PART), strict=True)
        self.integers = torch.cat([(part / step).round().to(torch.int8).T for part, step in parts])  # [out, in]
        self.scale = scale  # float32 [out]
        self._scale16 = torch.ones_like(scale, dtype=torch.bfloat16)

    @property
    def nbytes(self) -> int:
        return self.integers.nbytes + self.scale.nbytes + self._scale16.nbytes

    @staticmethod
    def nbytes_of(inputs: int, outputs: int) -> int:
        """Bytes of a matrix of this size: one a weight, and two scales for each output, in float32 and in bfloat16."""
        return (inputs + 6) * outputs

    def __rmatmul__(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out], in the dtype of x."""
        rows = x.reshape(-1, x.shape[-1])  # [R, in]
        if rows.shape[1] % VECTOR == 0:
            # The scale is applied outside of the kernel, which would round it to bfloat16.
            out = torch._weight_int8pack_mm(rows.bfloat16(), self.integers, self._scale16).to(x.dtype)
        else:
            out = F.linear(rows, self.integers.to(x.dtype))
        return (out * self.scale).view(*x.shape[:-1], -1)
