"""The same sizes read from real tensors: transformers' own model and cache, on the meta device.

A meta tensor has a shape and a dtype but no memory, so a 405B model runs its forward pass here in seconds. None of our
formulas is used: we count whatever the model puts into its cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llmlesson.errors import LessonError
from llmlesson.sizing.decoder import decoder_config
from llmlesson.sizing.dtypes import FLOATS, get_dtype
from llmlesson.sizing.from_config import model_spec
from llmlesson.sizing.models import load_config
from llmlesson.sizing.result import KVCacheSize, LayerSize
from llmlesson.sizing.specs import ModelSpec
from llmlesson.sizing.units import MAX_BATCH, check_tokens

if TYPE_CHECKING:
    import torch

MEASURABLE = ("hf_dynamic", "hf_static")


def measure(
    config_or_name: Any, tokens: int, batch: int = 1, dtype: str = "bf16", convention: str = "hf_dynamic"
) -> KVCacheSize:
    """The size of transformers' cache after one forward pass over `batch` prompts of `tokens` tokens.

    `config_or_name` as for `kv_cache`, except for a list of layers. `dtype`: fp32, fp16 or bf16, the model's and so the
    cache's. `convention`: "hf_dynamic" (DynamicCache) or "hf_static" (StaticCache of `tokens`). Needs no weights and no
    memory, and takes seconds; models with Mamba or linear layers take time in proportion to `tokens` (transformers'
    reference code loops over them). LessonError for a model that can't run without data, such as an encoder-decoder.
    """
    tokens, batch = check_tokens(tokens), check_tokens(batch, "batch", MAX_BATCH)
    if get_dtype(dtype).name not in FLOATS:
        raise LessonError(f"transformers' cache keeps the model's dtype: measure in {', '.join(FLOATS)}, not {dtype}.")
    if convention not in MEASURABLE:
        raise LessonError(f"Only transformers' own caches can be measured: choose {' or '.join(MEASURABLE)}.")
    config, name = load_config(config_or_name)
    spec = model_spec(config, name)
    model = meta_model(config, name, dtype)
    with _runs_without_data(name):
        cache = fill_cache(model, tokens, batch, static=convention == "hf_static")
    return size_of_cache(cache, spec, tokens, batch, get_dtype(dtype).name, convention)


def meta_model(config: dict[str, Any], name: str, dtype: str = "bf16") -> Any:
    """The language model that `config` describes, on the meta device, in eval mode."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    text, model_type = decoder_config(config, name)
    torch_dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[get_dtype(dtype).name]
    with _runs_without_data(name):
        hf_config = CONFIG_MAPPING[model_type].from_dict({**text, "model_type": model_type})
        causal = type(hf_config) in AutoModelForCausalLM._model_mapping
        with torch.device("meta"):
            # The default for experts, grouped_mm, works on the meta device only in bf16.
            model = (AutoModelForCausalLM if causal else AutoModel).from_config(
                hf_config, dtype=torch_dtype, experts_implementation="batched_mm"
            )
    return model.eval()


def fill_cache(model: Any, tokens: int, batch: int = 1, *, static: bool = False) -> Any:
    """Run `model` once over zeros `[batch, tokens]` with `use_cache=True`; return the cache it filled."""
    import torch
    from transformers import StaticCache

    device = next(model.parameters()).device
    ids = torch.zeros(batch, tokens, dtype=torch.long, device=device)
    kwargs: dict[str, Any] = {}
    if static:
        accepts = inspect.signature(model.forward).parameters
        kwargs["cache" if "cache" in accepts else "past_key_values"] = StaticCache(model.config, max_cache_len=tokens)
    with torch.no_grad(), torch.device(device):
        outputs = model(input_ids=ids, use_cache=True, **kwargs)
    cache = getattr(outputs, "cache", None)
    return outputs.past_key_values if cache is None else cache


def size_of_cache(
    cache: Any, spec: ModelSpec, tokens: int, batch: int, dtype: str, convention: str = "hf_dynamic"
) -> KVCacheSize:
    """Sum the tensors of a transformers cache, layer by layer. `spec` gives the layers their kinds."""
    own, cross = _halves(cache)
    if len(own) != len(spec.layers):
        raise LessonError(f"{spec.name}: the cache has {len(own)} layers, but the config describes {len(spec.layers)}.")
    sizes = []
    for index, (layer, described) in enumerate(zip(own, spec.layers, strict=True)):
        cross_layers = [cross[index]] if cross else [layer] if described.kind == "cross" else []
        sizes.append(_layer_size(index, described.kind, layer, cross_layers, batch))
    cross_tokens = next((layer.keys.shape[-2] for layer in cross), None)
    return KVCacheSize(spec.name, tokens, batch, dtype, convention, 1, tuple(sizes), spec, cross_tokens, "measured")


def _halves(cache: Any) -> tuple[list[Any], list[Any]]:
    """The layers of an encoder-decoder's two caches, or of the one cache."""
    if hasattr(cache, "self_attention_cache"):
        return list(cache.self_attention_cache.layers), list(cache.cross_attention_cache.layers)
    return list(cache.layers), []


def _layer_size(index: int, kind: str, layer: Any, cross_layers: list[Any], batch: int) -> LayerSize:
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    index_keys = getattr(layer, "indexer_keys", None)
    states = [*_tensors(getattr(layer, "conv_states", {})), *_tensors(getattr(layer, "recurrent_states", {}))]
    cross = sum(_nbytes(other.keys) + _nbytes(other.values) for other in cross_layers)
    cells = keys.shape[-2] if keys is not None and layer not in cross_layers else 0
    growing = (_nbytes(keys) + _nbytes(values) + _nbytes(index_keys)) // (batch * cells) if cells else 0
    extra = [other for other in cross_layers if other is not layer]
    return LayerSize(
        index=index,
        kind=kind,
        key_nbytes=_nbytes(keys) + _nbytes(index_keys) + sum(_nbytes(other.keys) for other in extra),
        value_nbytes=_nbytes(values) + sum(_nbytes(other.values) for other in extra),
        state_nbytes=sum(map(_nbytes, states)),
        cells=cells,
        bytes_per_token=growing,
        marginal_bytes_per_token=0 if getattr(layer, "is_sliding", False) else growing,
        cross_nbytes=cross,
    )


def _tensors(states: Any) -> list[torch.Tensor]:
    """A layer's states: transformers keeps them in a dict by number, or a list; unused ones are None."""
    found = states.values() if isinstance(states, dict) else states if isinstance(states, list | tuple) else [states]
    return [tensor for tensor in found if tensor is not None]


def _nbytes(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


@contextmanager
def _runs_without_data(name: str) -> Iterator[None]:
    """Silences transformers' logging, and turns its errors on the meta device into a LessonError."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    except LessonError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise LessonError(
            f"{name}: transformers can't build and run this model on the meta device, so its cache can't be measured "
            f"there ({type(error).__name__}: {reason})."
        ) from error
    finally:
        logging.set_verbosity(before)
