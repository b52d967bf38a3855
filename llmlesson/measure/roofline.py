"""The two measured limits of a device, and how close to them a phase comes.

Roofline model: Williams, Waterman and Patterson, CACM 52(4), 2009. MFU: the share of the arithmetic peak that a
model's counted FLOPs reach (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B). MBU: the same for bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from llmlesson.files.fetch import default_model_folder
from llmlesson.measure.cost import Cost
from llmlesson.measure.machine import device_name
from llmlesson.measure.timing import Stopwatch

if TYPE_CHECKING:
    from llmlesson.engine import Engine

REPEATS = 7
MOST_READ = 192 * 2**20  # bytes; more than CPU caches hold, and reading more gives the same bandwidth
MATMUL_SIZE = {"cpu": 2048, "cuda": 8192}


@dataclass(frozen=True)
class Roofline:
    """The peak rates that torch reaches on one device, best of several tries."""

    device: str
    dtype: str  # of the matrices
    threads: int  # 0 on a GPU
    torch: str  # version
    read_nbytes: int  # size of the buffer that was read
    matmul_size: int  # n of the n × n matrices that were multiplied
    bytes_per_second: float
    flops_per_second: float

    @property
    def ridge(self) -> float:
        """FLOPs per byte above which arithmetic is the limit, and below which memory is."""
        return self.flops_per_second / self.bytes_per_second

    def place(self, cost: Cost, seconds: float) -> Placement:
        """Compare work that took `seconds` with the limits."""
        return Placement(cost, seconds, self)

    def __str__(self) -> str:
        return (
            f"{self.bytes_per_second / 1e9:,.1f} GB/s (sum of {self.read_nbytes:,} bytes as int64), "
            f"{self.flops_per_second / 1e9:,.0f} GFLOP/s ({self.dtype} product of two {self.matmul_size}² matrices), "
            f"ridge at {self.ridge:.1f} FLOP/byte"
        )


@dataclass(frozen=True)
class Placement:
    """Counted work, the time it took, and the limits of the device."""

    cost: Cost
    seconds: float
    roofline: Roofline

    @property
    def flops_per_second(self) -> float:
        return self.cost.flops / self.seconds

    @property
    def bytes_per_second(self) -> float:
        return self.cost.nbytes / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: 1 is the measured arithmetic peak."""
        return self.flops_per_second / self.roofline.flops_per_second

    @property
    def mbu(self) -> float:
        """Memory bandwidth utilization: 1 is the measured bandwidth."""
        return self.bytes_per_second / self.roofline.bytes_per_second

    @property
    def limit(self) -> str:
        """Which limit applies to this work: "memory" left of the ridge, "compute" right of it."""
        return "memory" if self.cost.intensity < self.roofline.ridge else "compute"

    @property
    def least_seconds(self) -> float:
        """The shortest time that the limits allow."""
        peaks = self.roofline
        return max(self.cost.flops / peaks.flops_per_second, self.cost.nbytes / peaks.bytes_per_second)


def measure(device: torch.device, dtype: torch.dtype, nbytes: int) -> Roofline:
    """Measure the limits now; takes about two seconds on a CPU.

    Bandwidth: the sum of an int64 buffer of `nbytes` (at most 192 MiB), which torch reads once, on all threads, with
    almost no arithmetic. Arithmetic: the product of two large square matrices in `dtype`.
    """
    nbytes = min(nbytes, MOST_READ) // 8 * 8
    read_seconds = _best(device, torch.ones(nbytes // 8, dtype=torch.int64, device=device).sum)
    size = MATMUL_SIZE[device.type]
    left, right = torch.randn(2, size, size, device=device).to(dtype)
    product = torch.empty(size, size, dtype=dtype, device=device)
    matmul_seconds = _best(device, lambda: torch.matmul(left, right, out=product))
    return Roofline(
        device=device_name(device),
        dtype=str(dtype).removeprefix("torch."),
        threads=_threads(device),
        torch=torch.__version__,
        read_nbytes=nbytes,
        matmul_size=size,
        bytes_per_second=nbytes / read_seconds,
        flops_per_second=2 * size**3 / matmul_seconds,
    )


def measure_and_keep(engine: Engine) -> Roofline:
    """Measure the limits for an engine's device and dtype, reading as many bytes as its weights take.

    The best result so far is kept in `roofline.json` beside the models, for each device, dtype, thread count, torch
    version and size. If it is higher, it is returned instead: other programs on the machine make a measurement too
    low, never too high.
    """
    roofline = measure(engine.device, engine.dtype, engine.model.nbytes)
    before = kept(engine)
    if before is not None:
        roofline = replace(
            roofline,
            bytes_per_second=max(roofline.bytes_per_second, before.bytes_per_second),
            flops_per_second=max(roofline.flops_per_second, before.flops_per_second),
        )
    _write_file({**_read_file(), _key(engine): asdict(roofline)})
    return roofline


def kept(engine: Engine) -> Roofline | None:
    """The limits that `measure_and_keep` stored for an engine's device and dtype, or None. Measures nothing."""
    with contextlib.suppress(KeyError, TypeError):  # not there, or written by another version
        return Roofline(**_read_file()[_key(engine)])
    return None


def _key(engine: Engine) -> str:
    name, threads = device_name(engine.device), _threads(engine.device)
    return f"{name}, {engine.dtype}, {threads} threads, torch {torch.__version__}, {engine.model.nbytes} bytes"


def path() -> Path:
    """The file with the measured limits."""
    return default_model_folder().parent.parent / "roofline.json"


def _best(device: torch.device, work: Callable[[], object]) -> float:
    """The shortest of several runs in seconds: disturbances make them longer, never shorter."""
    work()
    stopwatch = Stopwatch(device)
    stopwatch.start()
    for _ in range(REPEATS):
        work()
        stopwatch.lap()
    return min(stopwatch.laps())


def _threads(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 0


def _read_file() -> dict[str, Any]:
    try:
        kept = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write_file(kept: dict[str, Any]) -> None:
    # If it can't be written, the next call measures again, which costs only two seconds.
    with contextlib.suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        new = path().with_suffix(f".{os.getpid()}.tmp")
        new.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        os.replace(new, path())
