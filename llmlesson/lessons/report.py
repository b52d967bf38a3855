"""What `check` found, as it is shown in a notebook or a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmlesson.views import exercise as view


@dataclass(frozen=True)
class Failure:
    """The first case that went wrong; number 0 if no case was reached."""

    problem: str
    means: str = ""  # what a wrong value usually comes from
    why: str = ""  # what is known for certain
    number: int = 0
    origin: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    expected: Any = None
    got: Any = None
    raised: bool = False
    seed: int | None = None


@dataclass(frozen=True, repr=False)
class Report:
    """status: "passed" | "failed" | "not done"; cases: how many were run; missing: what is not done, where not all."""

    exercise: str
    function_name: str
    status: str
    cases: int = 0
    failure: Failure | None = None
    missing: str = ""
    kept: tuple[str, str] | None = None  # whether it is now a part of the learner's engine: a label and a text

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    def rows(self) -> list[tuple[str, str]]:
        """What is wrong, as (label, text); a text may have several lines."""
        failure = self.failure
        if failure is None:
            return [self.kept] if self.kept else []
        rows = [("raised" if failure.raised else "problem", failure.problem)]
        rows += [(label, text) for label, text in (("usually means", failure.means), ("why", failure.why)) if text]
        return rows

    def details(self) -> list[tuple[str, str]]:
        """The case that went wrong: what went in, what should come out, what came out, how to repeat it."""
        failure = self.failure
        if failure is None or not failure.number:
            return []
        rows = [(name, view.shown(value)) for name, value in failure.inputs.items()]
        rows.append(("expected", view.shown(failure.expected)))
        if not failure.raised:
            rows.append(("got", view.shown(failure.got)))
        if failure.seed is not None:
            again = f"lessons.check({self.exercise!r}, {self.function_name}, seed={failure.seed})".replace("'", '"')
            rows.append(("the same again", again))
        return rows

    def headline(self) -> str:
        if self.status == "passed":
            return f"✓ {self.exercise}: right, in all {self.cases} cases."
        if self.status == "not done":
            again = 'Put your code in place of the "..." and run the cell again.'
            return f"○ {self.exercise}: not done yet. {self.missing or again}"
        failure = self.failure
        if failure is None or not failure.number:
            return f"✗ {self.exercise}: not right yet."
        return f"✗ {self.exercise}: not right yet. This is case {failure.number} ({failure.origin}):"

    def __repr__(self) -> str:
        return view.report_text(self.headline(), [*self.rows(), *self.details()])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        html = view.report_html(self.status, self.headline(), self.rows(), self.details())
        return {"text/html": html, "text/plain": repr(self)}
