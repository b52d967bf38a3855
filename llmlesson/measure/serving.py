"""A server that is kept full: tokens a second for each user and in all, by how many users are served at once.

The model, in four sentences. `users` requests are in flight, all alike, and a new one takes the place of each that
ends. Every step adds one token to every answer, so a request is in flight for as many steps as its answer has tokens.
In the same steps the server reads the prompts of those who come in, evenly spread (chunked prefill: Agrawal et al.,
Sarathi-Serve, arXiv 2403.02310). A step takes as long as its arithmetic or its reading of memory, whichever is longer
(roofline).

Then Little's law holds at every point: users = requests a second × seconds a request (Little, Operations Research 9(3),
1961). What the model leaves out makes a real server slower: queues, uneven arrivals, the steps in which a request's own
prompt is still being read (as many as answer tokens / users), the time around each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmlesson.errors import LessonError, whole_number


@dataclass(frozen=True)
class Point:
    """A server at work with this many requests in flight."""

    users: int
    answer: int  # tokens of each answer
    step_seconds: float
    step_tokens: float  # of prompts and answers together, on average
    limit: Literal["memory", "arithmetic"]

    @property
    def each(self) -> float:
        """Tokens a second that one user gets."""
        return 1 / self.step_seconds

    @property
    def in_all(self) -> float:
        """Tokens a second of all answers together."""
        return self.users / self.step_seconds

    @property
    def request_seconds(self) -> float:
        """From the start of a request to the last token of its answer."""
        return self.answer * self.step_seconds

    @property
    def requests_per_second(self) -> float:
        return self.in_all / self.answer


@dataclass(frozen=True)
class Service:
    """A machine, a model and its requests. The machine's two peaks, or the shares of them that are reached.

    cache_bytes: of one request; as if it had all its tokens from the start, so a little too much.
    """

    prompt: int  # tokens
    answer: int
    prompt_flops: float  # to read one prompt
    answer_flops: float  # to write one answer after it
    weight_bytes: float  # that every step reads, once for all
    cache_bytes: float
    room: int  # requests whose caches fit
    flops_per_second: float
    bytes_per_second: float

    def at(self, users: int, chunked: bool = True) -> Point:
        """The server with `users` requests in flight. chunked=False: prompts are read in steps of their own, meanwhile
        the others wait. LessonError if there isn't room for so many.
        """
        users = whole_number(users, "users", 1, 10**9)
        if users > self.room:
            raise LessonError(f"{users:,} users don't fit: there is room for {self.room:,} caches.")
        prompts = users / self.answer  # that are read in a step, on average
        reading = prompts * self.prompt_flops / self.flops_per_second
        writing = prompts * self.answer_flops / self.flops_per_second
        memory = (self.weight_bytes + users * self.cache_bytes) / self.bytes_per_second
        seconds = max(reading + writing, memory) if chunked else reading + max(writing, memory)
        arithmetic = (reading + writing if chunked else writing) > memory
        tokens = users + prompts * self.prompt
        return Point(users, self.answer, seconds, tokens, "arithmetic" if arithmetic else "memory")

    def curve(self, chunked: bool = True) -> list[Point]:
        """1, 2, 4, … users, up to as many as fit. Empty if there isn't room for one."""
        users = [2**power for power in range(self.room.bit_length()) if 2**power < self.room]
        return [self.at(count, chunked) for count in (*users, *([self.room] if self.room else []))]

    @property
    def turning_point(self) -> int | None:
        """The first number of users at which arithmetic is the limit and no longer memory; None if memory stays it."""
        if self.room < 1 or self.at(self.room).limit == "memory":
            return None
        low, high = 0, self.room  # arithmetic is no limit with `low`, and is with `high`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(middle).limit == "arithmetic" else (middle, high)
        return high
