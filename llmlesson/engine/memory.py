"""Out-of-memory errors that say how to need less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from llmlesson.errors import LessonError


@contextmanager
def explained_out_of_memory(what: str, nbytes: int, device: torch.device, way_out: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors into a LessonError that says how much `what` needs and how to need less."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        # On a CPU torch raises a plain RuntimeError when memory runs out; any other RuntimeError is something else.
        if not isinstance(error, torch.OutOfMemoryError) and "allocate" not in str(error):
            raise
        free = ""
        if device.type == "cuda":
            free = f", of which {torch.cuda.mem_get_info(device)[0] / 1e9:.2f} GB are free"
        raise LessonError(
            f"Out of memory: {what} needs {nbytes:,} bytes ({nbytes / 1e9:.2f} GB) on {device}{free}. {way_out}"
        ) from error
