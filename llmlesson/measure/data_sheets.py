"""The two limits of cards that few learners have, as their vendors state them. We compute with them: not measured."""

from __future__ import annotations

from dataclasses import dataclass

from llmlesson.measure.cost import Cost


@dataclass(frozen=True)
class DataSheet:
    """Peak rates of a card for 16-bit numbers. No program fully reaches them."""

    name: str
    flops_per_second: float  # dense products on tensor cores
    bytes_per_second: float
    memory_nbytes: float
    source: str

    @property
    def ridge(self) -> float:
        """FLOPs per byte above which arithmetic is the limit, and below which memory is."""
        return self.flops_per_second / self.bytes_per_second

    def least_seconds(self, cost: Cost) -> float:
        """The shortest time that the limits allow. It doesn't check whether the weights fit into memory."""
        return max(cost.flops / self.flops_per_second, cost.nbytes / self.bytes_per_second)


T4 = DataSheet("T4", 65e12, 320e9, 16e9, "NVIDIA T4 data sheet: 65 TFLOPS in float16, 320 GB/s, 16 GB")
H100 = DataSheet(
    "H100",
    989e12,
    3.35e12,
    80e9,
    "NVIDIA H100 data sheet (SXM): 989 TFLOPS in bfloat16 without sparsity, 3.35 TB/s, 80 GB",
)
