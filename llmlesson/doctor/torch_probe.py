"""What torch reports about itself and the GPU, as one JSON object.

Run this as a script, in a separate process: a broken torch can crash the process that imports it, or hang.
"""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from typing import Any


def probe() -> dict[str, Any]:
    """Facts about torch, `error` if it can't be imported; `engine_error` if the course's own modules can't."""
    facts: dict[str, Any] = {}
    try:
        import torch

        torch.ones(2, 2) @ torch.ones(2, 2)
        facts |= {"version": torch.__version__, "cuda": torch.version.cuda, "gpus": []}
    except Exception as error:
        return {"error": first_line(error)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
                free, total = torch.cuda.mem_get_info(index)
                gpu = {"name": torch.cuda.get_device_name(index), "free": free, "total": total}
                facts["gpus"].append(gpu | {"capability": list(torch.cuda.get_device_capability(index))})
            facts["architectures"] = torch.cuda.get_arch_list()
        except Exception as error:
            facts["gpu_error"] = first_line(error)
    facts["warnings"] = [first_line(warning.message) for warning in caught]
    try:
        for module in ("llmlesson.engine", "llmlesson.widgets", "llmlesson.files.gguf_model"):
            import_module(module)
    except Exception as error:
        facts["engine_error"] = first_line(error)
    return facts


def first_line(error: Any) -> str:
    name = "" if isinstance(error, Warning) else f"{type(error).__name__}: "
    return (name + str(error).strip()).splitlines()[0]


if __name__ == "__main__":
    print(json.dumps(probe()))
