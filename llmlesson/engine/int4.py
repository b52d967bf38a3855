"""Weights as 4-bit integers: a sixth of the bytes of float32, for a decode step that spends its time reading them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from llmlesson.engine.int8 import PART

GROUP = 32  # weights of one output, next to each other along the inputs, that share a scale and a zero
LEVELS = 15  # 4 bits hold 0 to 15
BLOCK = 16  # the kernel works on so many outputs at a time


def kernel_is_fast() -> bool:
    """Whether torch's 4-bit kernel has code for this processor. Elsewhere it works value by value, 100 times slower."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def quantize(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[out, in] → 4-bit integers, int32 [out, in], with bfloat16 scales and zeros, [out, in / 32] each.

    weight ≈ (integer - 8) · scale + zero, the form that torch's kernel takes. The smallest weight of a group becomes 0
    and the largest 15. So where a group holds 16 evenly spaced values, as in a Q4_1 file, the same values come back.
    """
    groups = weights.float().unflatten(1, (-1, GROUP))  # [out, in / 32, 32]
    low, high = groups.amin(-1), groups.amax(-1)
    scale = ((high - low) / LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
    integers = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, LEVELS)
    return integers.int().flatten(1), scale.bfloat16(), (low + 8 * scale).bfloat16()


def dequantize(integers: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """The weights that 4-bit integers stand for, float32 [out, in]; shapes as in `quantize`."""
    groups = (integers - 8).unflatten(1, (-1, GROUP))  # [out, in / 32, 32]
    return (groups * scale.float()[..., None] + zero.float()[..., None]).flatten(1)


class Int4Matrix:
    """A matrix [in, out] stored as 4-bit integers in groups of 32 inputs, to be used as `x @ matrix`.

    Each group has its own scale and zero in bfloat16: 5 bits a weight in all. `in` must be a multiple of 32. As in
    `Int8Matrix`, activations pass through bfloat16, and a row's result is the same to the last bit whatever other rows
    there are, so that an answer doesn't depend on who else is in the batch.
    """

    def __init__(self, matrix: Tensor) -> None:
        self.outputs = matrix.shape[1]
        padded = F.pad(matrix.T, (0, 0, 0, -self.outputs % BLOCK))  # [out, in]
        parts = [quantize(part) for part in padded.split(PART)]
        integers, scale, zero = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        self.packed = torch._convert_weight_to_int4pack_for_cpu(integers, 1)  # uint8 [out, in / 2]
        self.scale_and_zero = torch.stack((scale.T, zero.T), dim=-1).contiguous()  # bfloat16 [in / 32, out, 2]

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + self.scale_and_zero.nbytes

    @staticmethod
    def nbytes_of(inputs: int, outputs: int) -> int:
        """Bytes of a matrix of this size."""
        return (outputs + -outputs % BLOCK) * (inputs // 2 + inputs // GROUP * 4)

    def __rmatmul__(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out], in the dtype of x."""
        rows = x.reshape(-1, x.shape[-1]).bfloat16()  # [R, in]
        out = torch._weight_int4pack_mm_for_cpu(rows, self.packed, GROUP, self.scale_and_zero)
        return out[:, : self.outputs].to(x.dtype).reshape(*x.shape[:-1], -1)
