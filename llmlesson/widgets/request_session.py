"""One request from text to answer: its tokens, its times, and its cache. No widget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import takewhile

from llmlesson.engine import Engine, Sampling
from llmlesson.engine.generation import Step
from llmlesson.errors import LessonError

MOST_TOKENS = 32  # of an answer: a picture with a row for each is seen at a glance
LONGEST_PROMPT = 512  # tokens; nothing stops a prefill once it runs


class RequestSession:
    """A prompt that is tokenized here, and read and answered by `run`.

    Raises LessonError for an empty prompt, and for one that would take long to read.
    """

    def __init__(self, engine: Engine, prompt: str, sampling: Sampling | None = None) -> None:
        if not prompt.strip():
            raise LessonError("There is nothing to send. Type a prompt first.")
        self.engine = engine
        self.sampling = sampling
        started = time.perf_counter()
        self.ids = engine.tokenizer.chat(prompt)
        self.tokenize_seconds = time.perf_counter() - started
        self.steps: list[Step] = []
        if len(self.ids) > LONGEST_PROMPT:
            raise LessonError(
                f"That prompt has {len(self.ids):,} tokens, which would take long to read. Here the limit is "
                f"{LONGEST_PROMPT}. Shorten the prompt."
            )

    def run(self) -> Iterator[Step]:
        """Read the prompt and write the answer, one Step at a time; each is kept in `steps`."""
        for step in self.engine.stream(self.ids, MOST_TOKENS, self.sampling):
            self.steps.append(step)
            yield step

    @property
    def typed(self) -> range:
        """The places in `ids` that are not the chat template's: what an empty message doesn't have."""
        empty = self.engine.tokenizer.chat("")
        before = common(self.ids, empty)
        after = common(self.ids[before:][::-1], empty[before:][::-1])
        return range(before, len(self.ids) - after)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(step.text for step in self.steps)

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended: "eos" | "length"; None while it is being written, or if it was stopped."""
        return self.steps[-1].finish_reason if self.steps else None


def common(one: list[int], other: list[int]) -> int:
    """How many tokens both have in common at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
