"""What a request produces: its steps, its timings, the whole answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from llmlesson.engine.cache import KVCache


@dataclass(frozen=True)
class Step:
    """One token of an answer, as `Engine.stream` and `Request.take` return it.

    A request doesn't know the seconds and the cache: they are 0 until whoever runs the model fills them in.
    """

    index: int  # 0 is the token that prefill gives
    token_id: int
    text: str  # what this token adds to the text; empty while a character is incomplete, and for end-of-sequence
    finish_reason: str | None  # on the last step: "eos" | "stop" | "length" | "cache_full"
    seconds: float = 0.0  # the forward pass and the choice of the token; for index 0 the prefill
    cache_length: int = 0  # positions in the cache after this step
    cache_nbytes: int = 0
    # Where asked for: log-probabilities of token ids, the best ones first, then the chosen one if it isn't among them.
    logprobs: dict[int, float] | None = None


@dataclass(frozen=True)
class Timings:
    """Seconds of one request."""

    tokenize: float
    prefill: float
    decode: tuple[float, ...] = ()  # one per decode step

    @property
    def time_to_first_token(self) -> float:
        return self.tokenize + self.prefill

    @property
    def inter_token_latency(self) -> float | None:
        """Median seconds of a decode step; None for an answer of one token."""
        return median(self.decode) if self.decode else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decode steps per second, not counting prefill; None for an answer of one token."""
        return len(self.decode) / sum(self.decode) if self.decode else None


@dataclass(frozen=True)
class Generation:
    """A whole answer."""

    text: str
    token_ids: list[int]  # with the end-of-sequence token, if it ended with one
    finish_reason: str  # "eos" | "stop" | "length" | "cache_full"; from a batch also "cancelled" | "error"
    timings: Timings
    prompt_ids: list[int] = field(repr=False)
    cache: KVCache | None = field(repr=False)  # None from a batch, which shares its cache
