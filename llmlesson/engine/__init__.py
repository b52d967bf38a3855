"""The engine: our own prefill and decode in plain PyTorch.

Read it in this order: rope, attention, cache, product, model (the forward pass), request (one answer in progress),
engine (prefill, decode, the loop), paged_cache (many texts in one forward pass), speculative (several tokens of one
text in one pass); then config, checkpoint, tokenizer and load, which read a model's files.
"""

from llmlesson.engine.cache import KVCache
from llmlesson.engine.engine import Engine
from llmlesson.engine.generation import Generation, Step, Timings
from llmlesson.engine.load import load
from llmlesson.engine.paged_cache import PagedCache, Span
from llmlesson.engine.request import Request
from llmlesson.engine.sampling import Sampling
from llmlesson.engine.speculative import DraftModel, PromptLookup, Speculation

__all__ = [
    "DraftModel",
    "Engine",
    "Generation",
    "KVCache",
    "PagedCache",
    "PromptLookup",
    "Request",
    "Sampling",
    "Span",
    "Speculation",
    "Step",
    "Timings",
    "load",
]
