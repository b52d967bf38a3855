"""How the next token is chosen from the scores of all tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from llmlesson.errors import LessonError, whole_number

SEEDS = (-(2**63), 2**64 - 1)  # what torch's random numbers take

TINY = torch.finfo(torch.float32).tiny  # a smaller divisor is 0 in float32, and 0 / 0 is NaN


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The parts are applied in this order, as in transformers.

    repetition_penalty: scores of tokens that are already in the prompt or the answer are divided by it if positive and
        multiplied by it if negative (Keskar et al., CTRL, arXiv 1909.05858); 1.0 changes nothing.
    frequency_penalty, presence_penalty: the first is subtracted from a token's score for each time that the answer
        holds it, the second once if it holds it at all, as in OpenAI's API and in vLLM. Negative ones invite.
    temperature: scores are divided by it; 0.0 takes the highest score, and everything below has no effect.
    top_k: keeps the k best tokens (and those that tie with the k-th); None, 0 or more than the vocabulary keeps all.
    top_p: keeps the best tokens, as few as reach a probability of p together (Holtzman et al., arXiv 1904.09751).
    min_p: keeps tokens at least min_p times as probable as the best one (Nguyen et al., arXiv 2407.01082).
    seed: the same seed gives the same tokens on the same device; None gives different ones each time.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.top_k is not None:
            whole_number(self.top_k, "top_k", 0)
        if self.seed is not None:
            whole_number(self.seed, "seed", *SEEDS)
        for name, is_right, rule in (
            ("temperature", lambda x: 0 <= x < math.inf, "0 or more"),
            ("top_p", lambda x: 0 <= x <= 1, "between 0 and 1"),
            ("min_p", lambda x: 0 <= x <= 1, "between 0 and 1"),
            ("repetition_penalty", lambda x: 0 < x < math.inf, "more than 0"),
            ("presence_penalty", math.isfinite, "such as 0.5"),
            ("frequency_penalty", math.isfinite, "such as 0.5"),
        ):
            value = getattr(self, name)
            if value is None and name in ("top_p", "min_p"):
                continue
            try:
                right = not isinstance(value, (bool, str)) and is_right(float(value))
            except (TypeError, ValueError, OverflowError):
                right = False
            if not right:
                raise LessonError(f"{name} is {value!r}: it must be a number, {rule}.")

    @property
    def needs_history(self) -> bool:
        """Whether the choice depends on earlier tokens."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0

    def stages(
        self, logits: Tensor, seen: Iterable[int] = (), answer: Iterable[int] = ()
    ) -> Iterable[tuple[str, Tensor]]:
        """The scores as given, then after each part that is switched on: names and float32 [V].

        logits: [V]; seen: the ids of prompt and answer so far; answer: those of the answer alone.
        A token that a part rules out gets the score -inf.
        """
        if not isinstance(logits, Tensor) or logits.ndim != 1:
            raise LessonError("The scores of every token are needed: a tensor [V] as engine.read(ids, cache) gives.")
        scores = logits.float()
        yield "logits", scores
        if self.repetition_penalty != 1.0:
            yield "repetition_penalty", (scores := _penalize(scores, seen, self.repetition_penalty))
        if self.frequency_penalty or self.presence_penalty:
            times = _count(answer, len(scores)).to(scores.device)  # [V]
            if self.frequency_penalty:
                yield "frequency_penalty", (scores := scores - self.frequency_penalty * times)
            if self.presence_penalty:
                yield "presence_penalty", (scores := scores - self.presence_penalty * (times > 0))
        if self.temperature == 0:
            return
        if self.temperature != 1.0:
            # Subtract the highest score first, so that a tiny temperature doesn't overflow to inf - inf.
            yield "temperature", (scores := (scores - scores.max()) / max(self.temperature, TINY))
        if self.top_k and self.top_k < len(scores):
            yield "top_k", (scores := _keep_top_k(scores, self.top_k))
        if self.top_p is not None and self.top_p < 1:
            yield "top_p", (scores := _keep_top_p(scores, self.top_p))
        if self.min_p:
            yield "min_p", (scores := _keep_min_p(scores, self.min_p))

    def explain(self, logits: Tensor, seen: Iterable[int] = (), answer: Iterable[int] = ()) -> dict[str, Tensor]:
        """The probability of every token after each part that is switched on: float32 [V] by name, in order.

        The last entry is the distribution that the token is drawn from. At temperature 0 one token has all of it.
        """
        stages = {name: scores.softmax(dim=0) for name, scores in self.stages(logits, seen, answer)}
        if self.temperature == 0:
            last = list(stages.values())[-1]
            stages["temperature"] = torch.nn.functional.one_hot(last.argmax(), len(last)).float()
        return stages


class Sampler:
    """Chooses the tokens of one answer."""

    def __init__(self, sampling: Sampling, prompt_ids: Iterable[int], device: torch.device) -> None:
        self._sampling = sampling
        self._seen = set(prompt_ids)
        self._answer: list[int] = []
        self._generator = torch.Generator(device)
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(int(sampling.seed))

    @property
    def needs_history(self) -> bool:
        """Whether `saw` must be told each token before the next is chosen."""
        return self._sampling.needs_history

    def choose(self, logits: Tensor) -> Tensor:
        """The next token, from the scores [V]: int64 [] on their device."""
        *_, (_, scores) = self._sampling.stages(logits, self._seen, self._answer)
        if self._sampling.temperature == 0:
            return scores.argmax()
        return torch.multinomial(scores.softmax(dim=0), 1, generator=self._generator)[0]

    def saw(self, token: int) -> None:
        """Take note of the token that was chosen."""
        self._seen.add(token)
        self._answer.append(token)

    def copy(self, sampling: Sampling | None = None) -> Sampler:
        """An independent copy that goes on with the same random numbers; `sampling` can be another one."""
        copy = Sampler(sampling or self._sampling, self._seen, self._generator.device)
        copy._answer = self._answer.copy()
        copy._generator.set_state(self._generator.get_state())
        return copy


def _penalize(scores: Tensor, seen: Iterable[int], penalty: float) -> Tensor:
    ids = torch.tensor(sorted(seen), dtype=torch.int64, device=scores.device)
    chosen = scores[ids]
    return scores.index_copy(0, ids, torch.where(chosen < 0, chosen * penalty, chosen / penalty))


def _count(ids: Iterable[int], vocab: int) -> Tensor:
    """How often each token is among these: float32 [V]."""
    times = torch.zeros(vocab)
    for token, count in Counter(ids).items():
        times[token] = count
    return times


def _keep_top_k(scores: Tensor, k: int) -> Tensor:
    kth_best = scores.topk(k).values[-1]
    return scores.masked_fill(scores < kth_best, -math.inf)


def _keep_top_p(scores: Tensor, p: float) -> Tensor:
    ascending, order = scores.sort()
    up_to_here = ascending.softmax(dim=0).cumsum(dim=0)
    drop = up_to_here <= 1 - p  # the worst tokens, as long as their total is within 1 - p
    drop[-1] = False  # the best one stays even at p = 0
    return scores.masked_fill(torch.zeros_like(drop).scatter(0, order, drop), -math.inf)


def _keep_min_p(scores: Tensor, min_p: float) -> Tensor:
    probabilities = scores.softmax(dim=0)
    return scores.masked_fill(probabilities < min_p * probabilities.max(), -math.inf)
