"""The engine: our own prefill and decode in plain PyTorch.

Read it in this order: rope, attention, cache, product, model (the forward pass), request (one answer on its way),
engine (prefill, decode, the loop); then config, checkpoint, tokenizer and load, which bring a model in.
"""

from llmlesson.engine.cache import BatchCache, KVCache
from llmlesson.engine.engine import Engine
from llmlesson.engine.generation import Generation, Step, Timings
from llmlesson.engine.load import load
from llmlesson.engine.request import Request
from llmlesson.engine.sampling import Sampling

__all__ = ["BatchCache", "Engine", "Generation", "KVCache", "Request", "Sampling", "Step", "Timings", "load"]
