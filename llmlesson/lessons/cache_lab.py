"""The break-the-cache lab: patients with unnamed bugs, their symptoms, and whether a diagnosis is right."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from llmlesson.engine import Engine
from llmlesson.errors import LessonError
from llmlesson.lessons.broken_cache import BUGS, LINES, ToyEngine
from llmlesson.lessons.compare import type_in_words
from llmlesson.views import cache_lab as view
from llmlesson.views.exercise import report_html, report_text

PATIENTS = {
    "A": "again",
    "B": "unrotated",
    "C": "own-token",
    "D": "window",
    "E": "late",
    "F": "top-left",
    "G": "restart",
    "H": "swapped",
}
STEPS = 14
SECOND_TURN = "<|im_end|>\n<|im_start|>user\nWhat is a qubit?<|im_end|>\n<|im_start|>assistant\n"
WRONG_LOGIT, WRONG_VALUE = 0.01, 0.001  # float32 rounding stays far below


@dataclass(frozen=True)
class Symptoms:
    """How a request went, compared with a sound engine: a prompt, greedy steps, then a second turn read at once."""

    texts: list[str]  # tokens that it wrote, one after the prompt and one after each step
    right: list[str]  # what a sound engine writes
    differences: list[float]  # largest logit difference after the prompt and after each step, for the same tokens
    second_turn: float  # the same after the second turn
    lengths: tuple[int, int, int]  # positions in the cache after the prompt, the steps, the second turn
    right_lengths: tuple[int, int, int]
    wrong_keys: list[int] | None  # positions in layer 0 with a wrong K; None if the lengths differ
    wrong_values: list[int] | None  # the same for V

    @property
    def departs(self) -> int | None:
        """Index of the first token that differs from a sound engine's; None if all are the same."""
        return next((i for i, (a, b) in enumerate(zip(self.texts, self.right, strict=True)) if a != b), None)

    @property
    def first_wrong_step(self) -> int | None:
        """The first pass with wrong logits: 0 is the prompt, 1 the first step; None if all are right."""
        return next((i for i, d in enumerate(self.differences) if d > WRONG_LOGIT), None)

    def signs(self) -> dict[str, str]:
        """The symptoms in words that are the same on every machine."""
        wrong, departs = self.first_wrong_step, self.departs
        keys, values = (
            "can't be compared" if columns is None else _ranges(columns)
            for columns in (self.wrong_keys, self.wrong_values)
        )
        return {
            "logits wrong from": "never" if wrong is None else "the prompt on" if wrong == 0 else f"step {wrong} on",
            "second turn": "wrong" if self.second_turn > WRONG_LOGIT else "right",
            "text departs": f"not in {len(self.texts)} tokens" if departs is None else f"at token {departs + 1}",
            "positions in the cache": " → ".join(f"{n:,}" for n in self.lengths),
            "K of layer 0 wrong at": keys,
            "V of layer 0 wrong at": values,
        }


class CacheLab:
    """The patients of one engine. Each is examined when you first ask for it, which takes a few seconds.

    prompt: put into the chat template.
    """

    def __init__(self, engine: Engine, prompt: str = "Explain quantum computing like I'm ten.") -> None:
        self.engine = engine
        self._prompt = engine.tokenizer.chat(prompt)
        self._second = engine.tokenizer.encode(SECOND_TURN, special=True)
        self._right = engine.generate(self._prompt, max_new_tokens=1 + STEPS).token_ids
        self.patients = dict(PATIENTS)
        self._known: dict[str | None, Symptoms] = {}

    def patient(self, name: str) -> ToyEngine:
        """A fresh copy of a patient, to experiment with. Raises LessonError for an unknown patient."""
        return ToyEngine(self.engine, self._bug(name))

    def examine(self, name: str) -> Examination:
        """One patient, step by step. Raises LessonError for an unknown patient."""
        return Examination(f"Patient {name}", self.symptoms(self._bug(name)))

    def ward(self) -> Ward:
        """All patients side by side."""
        return Ward({name: self.symptoms(bug) for name, bug in self.patients.items()})

    def check(self, diagnosis: Mapping[str, Any]) -> Verdict:
        """Compare a diagnosis with the truth: a bug's name for each patient, `...` where there is none yet.

        Raises LessonError for an unknown patient or bug.
        """
        if not isinstance(diagnosis, Mapping):
            raise LessonError(
                'A diagnosis is a dict with a bug for each patient, such as {"A": "late", "B": ...}, and not '
                f"{type_in_words(diagnosis)}."
            )
        for patient, bug in diagnosis.items():
            self._bug(patient)
            if bug is not ... and (not isinstance(bug, str) or bug not in BUGS):
                raise LessonError(f"{bug!r} is not on the list of bugs. They are: {', '.join(BUGS)}.")
        return Verdict({name: self._verdict(name, diagnosis.get(name, ...)) for name in self.patients})

    def plant(self, bug: str) -> str:
        """A bug for a neighbour to find: a short text that hides which bug it is, for their `admit`.

        Raises LessonError for an unknown bug.
        """
        if not isinstance(bug, str) or bug not in BUGS:
            raise LessonError(f"{bug!r} is not on the list of bugs. They are: {', '.join(BUGS)}.")
        return _sealed(secrets.token_hex(2), bug)

    def admit(self, text: str, name: str = "N") -> None:
        """Admit a neighbour's patient from the text that their `plant` gave. From now on it is in the ward.

        Raises LessonError for an incomplete text, and for a name that another patient has.
        """
        if not isinstance(name, str) or not name or name in PATIENTS:
            raise LessonError(f"{name!r} can't be the new patient's name: choose one that is not taken yet.")
        text = text.strip() if isinstance(text, str) else ""
        found = [bug for bug in BUGS if _sealed(text.partition("-")[0], bug) == text]
        if not found:
            raise LessonError("This is not a patient. Copy the whole text that lab.plant(...) gave your neighbour.")
        self.patients[name] = found[0]

    def symptoms(self, bug: str | None) -> Symptoms:
        """What a bug does; None for the toy engine without any."""
        if bug not in self._known:
            self._known[bug] = self._examined(bug)
        return self._known[bug]

    def _bug(self, patient: str) -> str:
        if not isinstance(patient, str) or patient not in self.patients:
            raise LessonError(f"There is no patient {patient!r}. The patients are {', '.join(self.patients)}.")
        return self.patients[patient]

    def _verdict(self, patient: str, guess: Any) -> tuple[str, str]:
        """ "right", "wrong" or "open", and what to say."""
        if guess is ...:
            return "open", "not done yet"
        true = self.patients[patient]
        if guess == true:
            return "right", f"{BUGS[true]} The line: {LINES[true]}"
        seen, would = self.symptoms(true).signs(), self.symptoms(guess).signs()
        sign = next(key for key in seen if seen[key] != would[key])
        return "wrong", f"Not {guess!r}. With it, “{sign}” would say: {would[sign]}. Here it says: {seen[sign]}."

    def _examined(self, bug: str | None) -> Symptoms:
        toy, says = ToyEngine(self.engine, bug), []
        logits, lengths = [toy.read(self._prompt)], [toy.keys[0].shape[1]]
        for _ in range(STEPS):
            says.append(int(logits[-1].argmax()))
            logits.append(toy.read([says[-1]]))
        lengths.append(toy.keys[0].shape[1])
        # What a sound engine says after each of the same tokens, all in one pass.
        everything = [*self._prompt, *says, *self._second]
        cache = self.engine.new_cache(len(everything))
        sound = self.engine.logits(everything, cache)  # [T, V]
        first = len(self._prompt) - 1
        says.append(int(logits[-1].argmax()))
        logits.append(toy.read(self._second))
        lengths.append(toy.keys[0].shape[1])

        *apart, second_turn = (
            float((a - b).abs().max())
            for a, b in zip(logits, (*sound[first : first + 1 + STEPS], sound[-1]), strict=True)
        )
        same_length = lengths[-1] == len(everything)
        return Symptoms(
            texts=self._texts(says),
            right=self._texts(self._right),
            differences=apart,
            second_turn=second_turn,
            lengths=(lengths[0], lengths[1], lengths[2]),
            right_lengths=(len(self._prompt), len(self._prompt) + STEPS, len(everything)),
            wrong_keys=_wrong(toy.keys[0], cache.keys(0)) if same_length else None,
            wrong_values=_wrong(toy.values[0], cache.values(0)) if same_length else None,
        )

    def _texts(self, ids: Sequence[int]) -> list[str]:
        return [self.engine.tokenizer.decode([i], special=True) for i in ids]


class _Shown:
    """Shown as HTML in a notebook and as text elsewhere."""

    def to_html(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.to_html(), "text/plain": repr(self)}


@dataclass(frozen=True, repr=False)
class Examination(_Shown):
    """One patient."""

    name: str
    symptoms: Symptoms

    def to_html(self) -> str:
        s = self.symptoms
        return view.examination(self.name, s.texts, s.right, s.differences, s.second_turn, s.signs())

    def __repr__(self) -> str:
        signs = "".join(f"\n  {sign}: {value}" for sign, value in self.symptoms.signs().items())
        return f"{self.name} writes: {''.join(self.symptoms.texts)!r}{signs}"


@dataclass(frozen=True, repr=False)
class Ward(_Shown):
    """All patients."""

    symptoms: dict[str, Symptoms]

    def to_html(self) -> str:
        return view.ward({name: s.signs() for name, s in self.symptoms.items()})

    def __repr__(self) -> str:
        return "\n".join(
            f"{name}: " + "; ".join(f"{sign}: {value}" for sign, value in s.signs().items())
            for name, s in self.symptoms.items()
        )


@dataclass(frozen=True, repr=False)
class Verdict(_Shown):
    """The result of a diagnosis: "right", "wrong" or "open" for each patient, and what to say."""

    patients: dict[str, tuple[str, str]]

    @property
    def passed(self) -> bool:
        return all(result == "right" for result, _ in self.patients.values())

    def to_html(self) -> str:
        return report_html(self._status(), self._headline(), []) + view.two_columns(dict(self._rows()))

    def __repr__(self) -> str:
        return report_text(self._headline(), self._rows())

    def _status(self) -> str:
        results = {result for result, _ in self.patients.values()}
        return "failed" if "wrong" in results else "not done" if "open" in results else "passed"

    def _headline(self) -> str:
        right = sum(result == "right" for result, _ in self.patients.values())
        return f"{right} of {len(self.patients)} diagnoses are right."

    def _rows(self) -> list[tuple[str, str]]:
        signs = {"right": "✓", "wrong": "✗", "open": "○"}
        return [(f"{signs[result]} {name}", text) for name, (result, text) in self.patients.items()]


def _sealed(salt: str, bug: str) -> str:
    """Not secret, but nobody reads it by accident."""
    return f"{salt}-{hashlib.sha256(f'{salt} {bug}'.encode()).hexdigest()[:8]}"


def _wrong(ours: Tensor, right: Tensor) -> list[int]:
    """Positions at which two [heads, S, D] differ."""
    return ((ours - right).abs().amax(dim=(0, 2)) > WRONG_VALUE).nonzero().flatten().tolist()


def _ranges(positions: Sequence[int]) -> str:
    """Such as "0–3, 7"."""
    starts = [p for p in positions if p - 1 not in positions]
    ends = [p for p in positions if p + 1 not in positions]
    return ", ".join(f"{a}–{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True)) or "none"
