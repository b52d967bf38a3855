"""Points in a device's work, and the seconds between them."""

from __future__ import annotations

import time

import torch


class Mark:
    """A point in the device's queue of work, and when it was reached.

    On CUDA it is an event in the stream. Making one doesn't wait, and the seconds between two are the device's time.
    """

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self._event is not None:
            self._event.record()
        self._time = time.perf_counter()

    def wait(self) -> None:
        """Wait until the device has reached it."""
        if self._event is not None:
            self._event.synchronize()

    def seconds_since(self, earlier: Mark) -> float:
        """From `earlier` to here. On CUDA the device must have reached this mark: see `wait`."""
        if self._event is not None and earlier._event is not None:
            return float(earlier._event.elapsed_time(self._event)) / 1000
        return self._time - earlier._time
