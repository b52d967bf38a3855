"""How large a KV cache becomes, for any model config.

    size = kv_cache("Qwen3-0.6B", tokens=40_960)
    size.nbytes, size.bytes_per_token, size.explain()

Importing this is light: torch and transformers are imported by `measure` and by `parameters` of an unlisted model only.
"""

from llmlesson.sizing.conventions import CONVENTIONS, Convention, get_convention
from llmlesson.sizing.dtypes import DTYPES, get_dtype
from llmlesson.sizing.from_config import model_spec
from llmlesson.sizing.models import model_table, resolve
from llmlesson.sizing.size import KVCacheSize, LayerSize, kv_cache
from llmlesson.sizing.specs import Attention, Layer, ModelSpec, State, Value

__all__ = [
    "CONVENTIONS",
    "DTYPES",
    "Attention",
    "Convention",
    "KVCacheSize",
    "Layer",
    "LayerSize",
    "ModelSpec",
    "State",
    "Value",
    "get_convention",
    "get_dtype",
    "kv_cache",
    "model_spec",
    "model_table",
    "resolve",
]
