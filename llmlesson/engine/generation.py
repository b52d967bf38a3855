"""What a request gives: its steps, its times, the whole answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from llmlesson.engine.cache import KVCache


@dataclass(frozen=True)
class Step:
    """One token of an answer, as `Engine.stream` and `Request.take` give it.

    What a request doesn't know is left at 0 until whoever ran the model fills it in: the seconds and the cache.
    """

    index: int  # 0 is the token that prefill gives
    token_id: int
    text: str  # what this token adds to the text; empty while a character is incomplete, and for end-of-sequence
    finish_reason: str | None  # on the last step: "eos" | "stop" | "length" | "cache_full"
    seconds: float = 0.0  # the forward pass and the choice of the token; for index 0 the prefill
    cache_length: int = 0  # positions in the cache after this step
    cache_nbytes: int = 0


@dataclass(frozen=True)
class Timings:
    """Seconds of one request."""

    tokenize: float
    prefill: float
    decode: tuple[float, ...] = ()  # one a decode step

    @property
    def time_to_first_token(self) -> float:
        return self.tokenize + self.prefill

    @property
    def inter_token_latency(self) -> float | None:
        """Median seconds of a decode step; None for an answer of one token."""
        return median(self.decode) if self.decode else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decode steps a second, prefill left out; None for an answer of one token."""
        return len(self.decode) / sum(self.decode) if self.decode else None


@dataclass(frozen=True)
class Generation:
    """A whole answer."""

    text: str
    token_ids: list[int]  # with the end-of-sequence token, where it ended with one
    finish_reason: str  # "eos" | "stop" | "length" | "cache_full"; from a batch also "cancelled"
    timings: Timings
    prompt_ids: list[int] = field(repr=False)
    cache: KVCache | None = field(repr=False)  # none from a batch, whose cache is shared
