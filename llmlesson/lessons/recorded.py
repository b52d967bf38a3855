"""What came through a load balancer on another machine, for those who have none."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from llmlesson.errors import LessonError
from llmlesson.server.balancer import INSTALL, find_balancer
from llmlesson.server.exchange import Exchange
from llmlesson.server.play import Ask

RECORDED = Path(__file__).with_name("data") / "balanced.json"

Trial = Callable[..., list[Exchange]]


def recorded(asks: Sequence[Ask], **settings: object) -> list[Exchange]:
    """What tools/record_balanced.py has stored of a trial. Raises LessonError for one that nobody has tried."""
    stored = json.loads(RECORDED.read_text(encoding="utf-8")).get(key(asks, settings))
    if stored is None:
        raise LessonError(f"This has not been recorded. {INSTALL}")
    return [Exchange(**one) for one in stored]


def or_recorded(trial: Trial) -> Trial:
    """A function of requests that needs a balancer: without one it gives what was recorded, and says so.

    Then it raises LessonError for requests and settings that nobody has tried.
    """

    @functools.wraps(trial)
    def tried(asks: Sequence[Ask], **settings: object) -> list[Exchange]:
        if find_balancer() is not None:
            return trial(asks, **settings)
        seen = recorded(asks, **settings)
        print("(No load balancer here: this was measured on another machine.)")
        return seen

    return tried


def key(asks: Sequence[Ask], settings: dict[str, object]) -> str:
    """The name of a trial in the file: its requests and settings."""
    return json.dumps([[[round(ask.at, 4), ask.tokens, ask.prompt] for ask in asks], sorted(settings.items())])
