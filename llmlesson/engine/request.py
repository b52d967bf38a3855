"""One request: a prompt, the answer so far, and whether it has ended. It runs no model and holds no cache.

Whoever runs the model (the engine, a widget, a scheduler, a server) gives a request the scores of its next position
and gets a step back, until a step says why the answer ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from llmlesson.engine.generation import Step
from llmlesson.engine.sampling import Sampler, Sampling
from llmlesson.engine.stopping import StopStrings
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError, whole_number


class Request:
    """A prompt and its answer so far.

    ids: the prompt, checked token ids (`Engine.request` makes a request from any prompt). sampling: how tokens are
    chosen; greedy if not given. stop: texts that end the answer and are not part of it.
    max_new_tokens: the most tokens of an answer. room: positions that its cache has for prompt and answer; the last
    token of an answer is never read, so it needs none. eos_token_ids: any of these ends the answer.
    tokenizer: without one, steps have no text. logprobs: each step has the log-probabilities of so many best tokens and
    of the chosen one, from the model's scores before any setting of `sampling`. min_new_tokens: no end-of-sequence
    token is chosen before the answer has so many; a stop string still ends it.
    Raises LessonError for settings that make no sense.
    """

    def __init__(
        self,
        ids: Sequence[int],
        sampling: Sampling | None = None,
        stop: str | Sequence[str] | None = None,
        max_new_tokens: int = 256,
        room: int | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
        tokenizer: Tokenizer | None = None,
        device: torch.device | str = "cpu",
        logprobs: int | None = None,
        min_new_tokens: int = 0,
    ) -> None:
        if sampling is not None and not isinstance(sampling, Sampling):
            raise LessonError(f"sampling is {sampling!r}: give a llmlesson.Sampling(temperature=…), or leave it out.")
        self.ids = list(ids)
        self.token_ids: list[int] = []  # the answer so far, with the token that ended it
        self.text = ""  # the answer so far, up to the last complete character
        self.finish_reason: str | None = None  # "eos" | "stop" | "length" | "cache_full"; None while it goes on
        self.max_new_tokens = whole_number(max_new_tokens, "max_new_tokens")
        self._min_new_tokens = whole_number(min_new_tokens, "min_new_tokens", 0, self.max_new_tokens)
        self._logprobs = None if logprobs is None else whole_number(logprobs, "logprobs", 0)
        self._scored: tuple[Tensor, Tensor, Tensor] | None = (
            None  # of the token chosen last: its own, the best, their ids
        )
        self._room = room
        self._eos_token_ids = eos_token_ids
        self._sampler = Sampler(sampling or Sampling(), self.ids, torch.device(device))
        self._control_names = tokenizer.control_names if tokenizer else {}
        self._text_stream = tokenizer.stream() if tokenizer else None
        self._stop = StopStrings(stop)

    @property
    def tokens(self) -> list[int]:
        """The prompt and the answer so far. The model may not have read the last token yet."""
        return self.ids + self.token_ids

    @property
    def needs_history(self) -> bool:
        """Whether a token must be accepted before the next can be chosen."""
        waits_for_eos = len(self.token_ids) < self._min_new_tokens
        return self._sampler.needs_history or self._logprobs is not None or waits_for_eos

    def take(self, logits: Tensor) -> Step:
        """Choose the next token from its scores, float32 [V]. Raises LessonError if the answer has ended."""
        return self.accept(int(self.choose(logits)))

    def choose(self, logits: Tensor) -> Tensor:
        """The first half of `take`: the next token, int64 [] on the device of the scores [V], not yet accepted."""
        allowed = logits
        if len(self.token_ids) < self._min_new_tokens and self._eos_token_ids:
            allowed = logits.index_fill(0, torch.tensor(sorted(self._eos_token_ids), device=logits.device), -math.inf)
        token = self._sampler.choose(allowed)
        if self._logprobs is not None:
            every = logits.float().log_softmax(dim=0)  # [V]
            self._scored = (every[token], *every.topk(min(self._logprobs, len(every))))
        return token

    def accept(self, token: int) -> Step:
        """The second half: add this token to the answer. Raises LessonError if the answer has ended."""
        if self.finish_reason:
            raise LessonError(f"This request has ended ({self.finish_reason}): it takes no more tokens.")
        self._sampler.saw(token)
        self.token_ids.append(token)
        text, stopped = self._show(token)
        self.finish_reason = "stop" if stopped else self._why_it_ends(token)
        if self.finish_reason and not stopped:
            rest, stopped = self._show_rest()
            text += rest
            if stopped:
                self.finish_reason = "stop"
        self.text += text
        return Step(len(self.token_ids) - 1, token, text, self.finish_reason, logprobs=self._take_logprobs(token))

    def fork(self, sampling: Sampling | None = None) -> Request:
        """An independent copy that goes on from here with the same random numbers; `sampling` can be another one."""
        copy = object.__new__(Request)
        vars(copy).update(vars(self))
        copy.token_ids = self.token_ids.copy()
        copy._sampler = self._sampler.copy(sampling)
        copy._stop = self._stop.copy()
        copy._text_stream = self._text_stream.copy() if self._text_stream else None
        return copy

    def _take_logprobs(self, token: int) -> dict[int, float] | None:
        if self._scored is None:
            return None
        (own, best, ids), self._scored = self._scored, None
        return dict(zip(ids.tolist(), best.tolist(), strict=True)) | {token: float(own)}

    def _why_it_ends(self, token: int) -> str | None:
        if token in self._eos_token_ids:
            return "eos"
        if len(self.token_ids) == self.max_new_tokens:
            return "length"
        if self._room is not None and len(self.ids) + len(self.token_ids) > self._room:
            return "cache_full"
        return None

    def _show(self, token: int) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string was found."""
        if self._text_stream is None:
            return "", False
        text, stopped = self._stop.push(self._text_stream.push(token))
        if not stopped and token in self._control_names:
            # A control token has no text, but its name can be, or be part of, a stop string.
            more, stopped = self._stop.push(self._control_names[token], hidden=True)
            text += more
        return text, stopped

    def _show_rest(self) -> tuple[str, bool]:
        """What was held back, once no more text can come."""
        if self._text_stream is None:
            return "", False
        text, stopped = self._stop.push(self._text_stream.flush())
        return (text, True) if stopped else (text + self._stop.flush(), False)

    def __repr__(self) -> str:
        state = self.finish_reason or "still going"
        return f"Request({len(self.ids)} tokens in the prompt, {len(self.token_ids)} in the answer, {state})"
