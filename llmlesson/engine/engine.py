"""Prefill, decode, and the loop around them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from llmlesson.engine.cache import Cache, KVCache
from llmlesson.engine.cuda_graph import tokens_read_behind
from llmlesson.engine.generation import Generation, Step, Timings
from llmlesson.engine.memory import explained_out_of_memory
from llmlesson.engine.model import Model
from llmlesson.engine.paged_cache import PagedCache
from llmlesson.engine.prompt import Ids, Prompt, checked_ids, prompt_ids
from llmlesson.engine.record import Recording
from llmlesson.engine.request import Request
from llmlesson.engine.sampling import Sampling
from llmlesson.engine.speculative import Speculation
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError, whole_number

# Room that prefill leaves for the answer when it makes the cache itself.
DEFAULT_ROOM = 1024


class Engine:
    """A model, its tokenizer, and the two things an LLM server does with them: prefill and decode."""

    def __init__(
        self, name: str, model: Model, tokenizer: Tokenizer | None, eos_token_ids: frozenset[int], missing: str = ""
    ) -> None:
        self.name = name
        self.model = model
        self.config = model.config
        self.eos_token_ids = eos_token_ids
        self._tokenizer = tokenizer
        self._missing = missing  # why there is no tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises LessonError if the model's folder has none."""
        if self._tokenizer is None:
            raise LessonError(self._missing)
        return self._tokenizer

    @property
    def device(self) -> torch.device:
        return self.model.norm.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.norm.dtype

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        weights = f" with {self.model.quantized} weights" if self.model.quantized else ""
        return f"Engine({self.name}, {self.device.type}, {dtype}{weights})"

    def new_cache(self, max_tokens: int, batch: int = 1) -> KVCache:
        """An empty cache for `max_tokens` positions; at most the model's context."""
        limit = self.config.max_position_embeddings
        if whole_number(max_tokens, "max_tokens") > limit:
            raise LessonError(f"Can't make a cache for {max_tokens} positions: {self.name} works with 1 to {limit}.")
        way_out = "Ask for fewer positions (or a smaller batch), or load the model with a smaller dtype."
        what = f"a KV cache for {max_tokens} positions" + (f" in each of {batch} rows" if batch > 1 else "")
        with explained_out_of_memory(what, batch * max_tokens * self._kv_bytes, self.device, way_out):
            return KVCache(*self._cache_shape, max_tokens, self.dtype, self.device, owner=self.model, batch=batch)

    def new_paged_cache(self, blocks: int, block_size: int = 16) -> PagedCache:
        """An empty cache of `blocks` blocks. Each has room for `block_size` positions of any one text."""
        blocks, block_size = whole_number(blocks, "blocks"), whole_number(block_size, "block_size")
        way_out = "Ask for fewer blocks, or load the model with a smaller dtype."
        what = f"a KV cache of {blocks} blocks of {block_size} positions"
        with explained_out_of_memory(what, blocks * block_size * self._kv_bytes, self.device, way_out):
            return PagedCache(*self._cache_shape, blocks, block_size, self.dtype, self.device, owner=self.model)

    @property
    def _cache_shape(self) -> tuple[int, int, int]:
        """Layers, key-value heads, head_dim."""
        c = self.config
        return c.num_hidden_layers, c.num_key_value_heads, c.head_dim

    @property
    def _kv_bytes(self) -> int:
        """Bytes of K and V of one position, in all layers."""
        layers, kv_heads, head_dim = self._cache_shape
        return 2 * layers * kv_heads * head_dim * self.dtype.itemsize

    def prefill(self, ids: Ids, cache: KVCache | None = None, chunk: int | None = None) -> tuple[KVCache, int]:
        """Read a prompt: K and V of every position go into the cache; the last position gives the first output token.

        ids: the prompt, [T]. Without a `cache` a new one is made, with room for up to 1,024 more tokens, as far as the
        model's context allows; with one, the prompt continues it. With `chunk`, at most that many tokens are read at a
        time, which gives the same cache and needs less memory. Raises LessonError, with the cache unchanged, for an
        empty prompt, an id outside the vocabulary, or too little room.
        """
        prompt = self._checked(ids)
        if cache is None:
            cache = self.new_cache(min(self.config.max_position_embeddings, self._fits(len(prompt)) + DEFAULT_ROOM))
        return cache, int(self._next(prompt, cache, chunk).argmax())

    def decode(self, cache: KVCache, token: int) -> tuple[KVCache, int]:
        """Read one token: its K and V are appended to the cache, in place. Returns the cache and the next token."""
        return cache, int(self.read([token], cache).argmax())

    def read(self, ids: Ids, cache: Cache, chunk: int | None = None) -> Tensor:
        """Read these ids [T] into the cache, all or none of them. Returns the scores of the next token, float32 [V].

        This is what prefill and decode share: prefill reads a prompt, decode reads one token, and both take the token
        with the best score. Raises LessonError, with the cache unchanged, as `prefill` does.
        """
        return self._next(self._checked(ids), cache, chunk)

    @torch.no_grad()
    def logits(self, ids: Ids, cache: Cache | None = None) -> Tensor:
        """The scores of every possible next token after each id: float32 [T, V]. Extends the cache if one is given."""
        checked = self._checked(ids)
        if cache is None:
            cache = self.new_cache(self._fits(len(checked)))
        return self.model.logits(self._extend(checked, cache))

    @contextmanager
    def record(self, layers: Collection[int] | None = None) -> Iterator[Recording]:
        """Keep Q, K, V, attention weights and the residual stream of these layers (all, if you name none).

            with engine.record([0, 5]) as recording:
                cache, token = engine.prefill(ids)
            recording[5].weights        # [Hq, T, S], of the last forward pass

        Costs nothing outside the `with`. A BatchEngine refuses to step inside it: a recording covers one sequence.
        """
        every = range(self.config.num_hidden_layers)
        wanted = every if layers is None else layers
        sound = isinstance(wanted, (Sequence, Set)) and all(type(layer) is int and layer in every for layer in wanted)
        if not sound:
            last = len(every) - 1
            raise LessonError(f"{self.name} has the layers 0 to {last}. Give a list of those, not {layers!r}.")
        self.model.recording = Recording(wanted)
        try:
            yield self.model.recording
        finally:
            self.model.recording = None

    def stream(
        self,
        prompt: Prompt,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        chat: bool = True,
        cache: KVCache | None = None,
        logprobs: int | None = None,
        speculation: Speculation | None = None,
    ) -> Iterator[Step]:
        """Answer a prompt one Step at a time, each as soon as it is ready.

        prompt: text or messages, put into the chat template unless `chat` is False, or a list of ids.
        sampling: how tokens are chosen; greedy if not given. stop: texts that end the answer and are not part of it.
        A `cache` with earlier positions is continued. With `speculation`, tokens are guessed ahead: the answer is the
        same, up to rounding (see `speculative`). Wrong input raises LessonError here, not at the first step. The
        caller may stop at any time; the engine keeps nothing.
        """
        request, cache = self._start(prompt, max_new_tokens, sampling, stop, chat, cache, logprobs)
        return self._steps(request, cache, speculation)

    def generate(
        self,
        prompt: Prompt,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        chat: bool = True,
        cache: KVCache | None = None,
        speculation: Speculation | None = None,
    ) -> Generation:
        """The same as `stream`, all at once."""
        started = time.perf_counter()
        request, cache = self._start(prompt, max_new_tokens, sampling, stop, chat, cache)
        tokenize = time.perf_counter() - started
        steps = list(self._steps(request, cache, speculation))
        return Generation(
            text=request.text,
            token_ids=request.token_ids,
            finish_reason=request.finish_reason or "",
            timings=Timings(tokenize, steps[0].seconds, tuple(step.seconds for step in steps[1:])),
            prompt_ids=request.ids,
            cache=cache,
        )

    def request(
        self,
        prompt: Prompt,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        chat: bool = True,
        room: int | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        min_new_tokens: int = 0,
    ) -> Request:
        """Make a request for this engine from a prompt, without running it. Wrong input raises LessonError.

        prompt, max_new_tokens, sampling, stop, chat: as for `stream`. room: positions that its cache has for it; the
        model's context if not given. ignore_eos: an end-of-sequence token doesn't end the answer; for measurements.
        logprobs, min_new_tokens: see `Request`.
        """
        ids = self.prompt_ids(prompt, chat)
        self._fits(len(ids))
        return Request(
            ids,
            sampling,
            stop,
            max_new_tokens,
            room=self.config.max_position_embeddings if room is None else room,
            eos_token_ids=frozenset() if ignore_eos else self.eos_token_ids,
            tokenizer=self._tokenizer,
            device=self.device,
            logprobs=logprobs,
            min_new_tokens=min_new_tokens,
        )

    def prompt_ids(self, prompt: Prompt, chat: bool = True) -> list[int]:
        """The ids of a prompt: see `stream`."""
        return prompt_ids(prompt, self._tokenizer, self._missing, chat, self.config.vocab_size)

    def _start(
        self,
        prompt: Prompt,
        max_new_tokens: int,
        sampling: Sampling | None,
        stop: str | Sequence[str] | None,
        chat: bool,
        cache: KVCache | None,
        logprobs: int | None = None,
    ) -> tuple[Request, KVCache]:
        """A request, and a cache with room for it."""
        if cache is None:
            request = self.request(prompt, max_new_tokens, sampling, stop, chat, logprobs=logprobs)
            # The last token of an answer is never read, so it needs no room.
            needed = len(request.ids) + request.max_new_tokens - 1
            return request, self.new_cache(min(needed, self.config.max_position_embeddings))
        self._check_owner(cache)
        room = cache.max_tokens - cache.length
        request = self.request(prompt, max_new_tokens, sampling, stop, chat, room, logprobs=logprobs)
        cache.require_room(len(request.ids))
        return request, cache

    def _steps(self, request: Request, cache: KVCache, speculation: Speculation | None) -> Iterator[Step]:
        """The steps of an answer, until the request ends. The last token is never read into the cache."""
        if speculation is not None:
            yield from speculation.steps(self, request, cache)
            return
        prompt = torch.tensor(request.ids, device=self.device)
        if self.device.type == "cuda" and self.model.recording is None:
            tokens = tokens_read_behind(self.model, cache, request, lambda: self._next(prompt, cache))
        else:
            tokens = self._tokens(request, cache, prompt)
        for token, seconds in tokens:
            step = request.accept(token)
            yield replace(step, seconds=seconds, cache_length=cache.length, cache_nbytes=cache.nbytes)
            if step.finish_reason:
                return

    def _tokens(self, request: Request, cache: KVCache, unread: Tensor) -> Iterator[tuple[int, float]]:
        """Tokens without end, each with its seconds; the caller must have the request accept each one."""
        while True:
            started = time.perf_counter()
            token = int(request.choose(self._next(unread, cache)))
            yield token, time.perf_counter() - started
            unread = torch.tensor([token], device=self.device)

    @torch.no_grad()
    def _next(self, ids: Tensor, cache: Cache, chunk: int | None = None) -> Tensor:
        """Read checked ids [T] into the cache. Returns the logits after the last, float32 [V]."""
        return self.model.logits(self._extend(ids, cache, chunk)[-1])

    def _extend(self, ids: Tensor, cache: Cache, chunk: int | None = None) -> Tensor:
        """Read checked ids [T] into the cache, all or none of them. Returns the last chunk's x, [T, H]."""
        if chunk is not None:
            chunk = whole_number(chunk, "chunk")
        self._check_owner(cache)
        cache.require_room(len(ids))
        before = cache.length
        try:
            for part in ids.split(chunk or len(ids)):
                x = self.model.forward(part[None], cache)  # [B, T, H]
                cache.advance(len(part))
                if self.model.recording is not None:
                    self.model.recording.end_pass(cache)
        except BaseException:
            cache.truncate(before)
            raise
        return x[0]

    def _fits(self, tokens: int) -> int:
        """Return `tokens`. Raises LessonError if the model's context is smaller."""
        limit = self.config.max_position_embeddings
        if tokens > limit:
            raise LessonError(
                f"The prompt has {tokens} tokens; {self.name} reads at most {limit} (its context). Shorten the prompt."
            )
        return tokens

    def _check_owner(self, cache: Cache) -> None:
        if not hasattr(cache, "owner"):
            kind = type(cache).__name__
            raise LessonError(f"A cache is needed here, not {kind}: engine.new_cache(max_tokens) makes one.")
        if cache.owner is not self.model:
            raise LessonError("This cache was made by another engine, whose keys and values mean nothing to this one.")

    def _checked(self, ids: Ids) -> Tensor:
        """Token ids as a tensor on the device, int64 [T]. Raises LessonError for anything else."""
        return checked_ids(ids, self.config.vocab_size).to(self.device)
