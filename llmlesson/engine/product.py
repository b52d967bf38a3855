"""x @ matrix, and how to make it read the matrix with all threads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from llmlesson.engine.quantized import Matrix

# Up to this many rows, splitting was faster than the plain product with AVX-512: by half for one row, a tenth for 38.
FEW_ROWS = 64


def product(x: Tensor, matrix: Matrix) -> Tensor:
    """x [..., in] @ matrix [in, out] → [..., out].

    The CPU's matrix product gives one or a few rows to a single thread, which can't read the matrix as fast as memory
    delivers it. So we split the inputs into one part per thread. That makes a batch of products, which do run in
    parallel, and we add up their results. The parts of the matrix are views: nothing is copied.
    """
    rows = x.shape[:-1].numel()
    if not isinstance(matrix, Tensor) or x.device.type != "cpu" or rows > FEW_ROWS:
        return x @ matrix
    parts = math.gcd(x.shape[-1], torch.get_num_threads())
    if parts == 1:
        return x @ matrix
    split = x.reshape(rows, parts, -1).transpose(0, 1)  # [P, R, in / P]
    results = torch.bmm(split, matrix.unflatten(0, (parts, -1)))  # [P, R, out]
    return results.sum(dim=0).view(*x.shape[:-1], -1)
