"""How many bytes a run of cached values takes, for plain formats and for block formats."""

from __future__ import annotations

from dataclasses import dataclass

from llmlesson.errors import LessonError
from llmlesson.sizing.specs import ModelSpec


@dataclass(frozen=True)
class Dtype:
    """`block_bytes` bytes hold `block` values. A plain type is a block of one value."""

    name: str
    block: int
    block_bytes: int

    def nbytes(self, values: int, what: str = "a row") -> int:
        """Bytes of a row of `values` values. LessonError if the row isn't whole blocks: no engine stores such a row."""
        if values % self.block:
            raise LessonError(
                f"{self.name} stores blocks of {self.block} values, and {what} has {values}: "
                "choose a dtype without blocks, such as fp8 or bf16."
            )
        return values // self.block * self.block_bytes

    @property
    def arithmetic(self) -> str:
        """The factor as written in a formula: "2 bytes", or "34/32 bytes" for a block format."""
        if self.block > 1:
            return f"{self.block_bytes}/{self.block} bytes"
        return "1 byte" if self.block_bytes == 1 else f"{self.block_bytes} bytes"


# Block sizes: q8_0 and q4_0 are ggml's block_q8_0 and block_q4_0 (32 values and one fp16 scale; ggml-common.h).
# nvfp4 follows vLLM's layout of a KV cache (nvfp4_kv_cache_full_dim): 16 four-bit values and one fp8 scale.
_DTYPES = {
    d.name: d
    for d in (
        Dtype("fp32", 1, 4),  # 32-bit floats
        Dtype("bf16", 1, 2),  # 16-bit floats
        Dtype("fp16", 1, 2),  # 16-bit floats
        Dtype("fp8", 1, 1),  # 8-bit floats; per-tensor scales, a few bytes per layer, are not counted
        Dtype("int8", 1, 1),  # 8-bit integers; scales depend on the engine and are not counted
        Dtype("q8_0", 32, 34),  # 32 int8 values and one fp16 scale
        Dtype("q4_0", 32, 18),  # 32 four-bit values and one fp16 scale
        Dtype("nvfp4", 16, 9),  # 16 four-bit floats and one fp8 scale; the per-tensor scale is not counted
    )
}
_SPELLINGS = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
DTYPES = tuple(_DTYPES)
FLOATS = ("fp32", "bf16", "fp16")


def get_dtype(name: object) -> Dtype:
    """The format called `name` ("bf16", "float16", "torch.bfloat16", "q8_0", …). Raises LessonError for any other."""
    key = str(name).removeprefix("torch.").lower()
    key = _SPELLINGS.get(key, key)
    if key not in _DTYPES:
        raise LessonError(f"{name!r} is not a dtype for a KV cache: choose one of {', '.join(DTYPES)}.")
    return _DTYPES[key]


def model_nbytes(spec: ModelSpec, dtype: Dtype) -> int:
    """Bytes of one value in the model's computation: `dtype` if a float type, else the config's dtype, else bf16."""
    own = (spec.model_dtype or "").removeprefix("torch.")
    return dtype.block_bytes if dtype.name in FLOATS else 4 if own in ("float32", "fp32") else 2
