"""How large the KV cache of any model config is.

    size = kv_cache("Qwen3-0.6B", tokens=40_960)
    size.nbytes, size.bytes_per_token, size.explain()

Importing this is light: torch and transformers are imported when `measure` or `count_weights` is called.
"""

from llmlesson.sizing.capacity import max_sequences, max_tokens
from llmlesson.sizing.conventions import CONVENTIONS, Convention, get_convention
from llmlesson.sizing.dtypes import DTYPES, get_dtype
from llmlesson.sizing.from_config import model_spec
from llmlesson.sizing.meta_device import measure
from llmlesson.sizing.models import model_table, resolve
from llmlesson.sizing.planning import Gpu, Plan, fit, get_gpu, gpu_table
from llmlesson.sizing.published import Claim, published_claims
from llmlesson.sizing.result import KVCacheSize, LayerSize
from llmlesson.sizing.size import kv_cache
from llmlesson.sizing.specs import Attention, Layer, ModelSpec, State, Value
from llmlesson.sizing.weights import Weights, count_weights, model_weights

__all__ = [
    "CONVENTIONS",
    "DTYPES",
    "Attention",
    "Claim",
    "Convention",
    "Gpu",
    "KVCacheSize",
    "Layer",
    "LayerSize",
    "ModelSpec",
    "Plan",
    "State",
    "Value",
    "Weights",
    "count_weights",
    "fit",
    "get_convention",
    "get_dtype",
    "get_gpu",
    "gpu_table",
    "kv_cache",
    "max_sequences",
    "max_tokens",
    "measure",
    "model_spec",
    "model_table",
    "model_weights",
    "published_claims",
    "resolve",
]
