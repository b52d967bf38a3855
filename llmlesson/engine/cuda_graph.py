"""Decode on CUDA without waiting for the host: the step is a CUDA graph, and the host reads tokens one step late.

A step of a small model is about 500 kernels that each run for microseconds; launching them one by one from Python takes
longer than running them. A CUDA graph records the launches once and replays them as one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from llmlesson.engine.cache import KVCache
from llmlesson.engine.mark import Mark
from llmlesson.engine.model import Model
from llmlesson.engine.request import Request

SMALLEST_BUCKET = 256


def bucket(length: int, max_tokens: int) -> int:
    """How many slots a step reads for a cache of `length` positions: 256, 512, 1024, … up to `max_tokens`.

    A graph's shapes are fixed, so it can't read only what is in use; reading the whole allocation would take several
    times as long.
    """
    size = SMALLEST_BUCKET
    while size < length:
        size *= 2
    return min(size, max_tokens)


class GraphedDecode:
    """The decode step of one cache, captured once for each bucket of its length. Falls back to eager with a warning."""

    def __init__(self, model: Model, cache: KVCache) -> None:
        self._model, self._cache = model, cache
        device = model.norm.device
        self._token = torch.zeros(1, 1, dtype=torch.int64, device=device)  # [B, T]
        self._position = torch.zeros(1, dtype=torch.int64, device=device)  # [B]
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._eager = device.type != "cuda"

    def logits(self, token: Tensor) -> Tensor:
        """Read one token, int64 [] on the device: its K and V are appended to the cache. Returns float32 [V]."""
        self._cache.require_room(1)
        self._token.copy_(token)
        self._position.fill_(self._cache.length)
        span = bucket(self._cache.length + 1, self._cache.max_tokens)
        if not self._eager and span not in self.graphs:
            self._capture(span)
        if self._eager:
            logits = self._step(span)
        else:
            graph, output = self.graphs[span]
            graph.replay()
            logits = output.clone()  # the next replay writes over it
        self._cache.advance(1)
        return logits

    def _step(self, span: int) -> Tensor:
        x = self._model.forward(self._token, self._cache.fixed_step(self._position, span))  # [B, T, H]
        return self._model.logits(x[0, -1])

    def _capture(self, span: int) -> None:
        try:
            # Run it once outside the capture, because libraries set things up at first use. The replay overwrites it.
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step(span)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = self._step(span)
            self.graphs[span] = graph, output
        except RuntimeError as error:
            warnings.warn(f"CUDA graph capture failed; decoding continues without it: {error}", stacklevel=2)
            self._eager = True


class _Chosen:
    """A token on its way to the host."""

    def __init__(self, token: Tensor) -> None:
        self.token = token  # int64 [], on the device
        if token.device.type == "cuda":
            # The copy is queued here, before the next step is, so that the host waits for this token only.
            self._host = torch.empty((), dtype=token.dtype, pin_memory=True).copy_(token, non_blocking=True)
        else:
            self._host = token
        self.mark = Mark(token.device)

    def read(self) -> int:
        self.mark.wait()
        return int(self._host)


def tokens_read_behind(
    model: Model, cache: KVCache, request: Request, prefill: Callable[[], Tensor]
) -> Iterator[tuple[int, float]]:
    """Tokens without end, each with its seconds. The host reads each one after it has launched the next step.

    prefill: reads the prompt into the cache and returns the logits [V] for the first token. The caller must have the
    request accept each token before asking for the next. If the caller stops, the step launched ahead is undone. If
    the choice depends on earlier tokens (a repetition penalty), nothing is launched ahead.
    """
    before = Mark(model.norm.device)
    chosen = _Chosen(request.choose(prefill()))
    step = GraphedDecode(model, cache)
    while True:
        length, upcoming = cache.length, None
        if not request.needs_history and length < cache.max_tokens:
            upcoming = _Chosen(request.choose(step.logits(chosen.token)))
        token = chosen.read()
        ahead = cache.length - length
        cache.truncate(length)  # what the caller sees while it holds this token, and keeps if it stops here
        yield token, chosen.mark.seconds_since(before)
        cache.advance(ahead)
        if upcoming is None:
            upcoming = _Chosen(request.choose(step.logits(chosen.token)))
        before, chosen = chosen.mark, upcoming
