"""The way of several requests at once: who waits where, whose text is on its way; step by step, or as it ran."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ipywidgets

from llmlesson.views.serving_map import moments, serving_map, state_at
from llmlesson.widgets.base import LessonWidget

if TYPE_CHECKING:
    from llmlesson.server.exchange import Exchange

FRAME = 0.1  # seconds between two pictures while it runs


class RequestMap(LessonWidget):
    """What clients of a balancer saw (`llmlesson.server.play`), as a map that can be stepped through and run.

    names: of the clients; they are numbered if there are none. Run goes at the pace at which it happened. At first, and
    without a kernel, it shows the moment with the most requests on their way. Raises ValueError if the names don't fit.
    """

    def __init__(self, exchanges: Sequence[Exchange], names: Sequence[str] = ()) -> None:
        super().__init__()
        serving_map(exchanges, 0.0, names)  # raises for what can't be drawn
        self._exchanges, self._names = list(exchanges), list(names)
        self._moments = moments(exchanges)
        self.at = max(self._moments, key=self._on_their_way)

    def to_html(self) -> str:
        return serving_map(self._exchanges, self.at, self._names)

    def _plain(self) -> str:
        return (
            f"{len(self._exchanges)} requests; {self._on_their_way(self.at)} on their way at the moment that is shown."
        )

    def _on_their_way(self, at: float) -> int:
        return sum(state_at(one, at) in ("waiting", "writing") for one in self._exchanges)

    def _build(self) -> list[ipywidgets.Widget]:
        last = len(self._moments) - 1
        self._place = ipywidgets.IntSlider(
            min=0, max=last, description="moment", readout=False, layout={"flex": "1 1 300px", "width": "auto"}
        )
        self._watch(self._place, self._go)
        self._picture = ipywidgets.HTML()
        buttons = [
            self._quick("Back", lambda: self._go(self._index - 1)),
            self._quick("Step", lambda: self._go(self._index + 1)),
            self._button("Run", self._run, "Running …").add_class("main"),
            self._stop_button(),
        ]
        row = {"flex_flow": "row wrap", "align_items": "center"}
        return [ipywidgets.HBox([*buttons, self._place], layout=row), self._picture]

    @property
    def _index(self) -> int:
        """Which of the moments is the last that has come."""
        return max(0, bisect_right(self._moments, self.at) - 1)

    def _go(self, index: int) -> str:
        self.at = self._moments[min(max(index, 0), len(self._moments) - 1)]
        return f"Moment {self._index + 1} of {len(self._moments)}."

    def _run(self) -> str:
        """From the beginning, or on from where it is; an end starts over."""
        first, last = self._moments[0], self._moments[-1]
        began = first if self.at >= last else self.at
        self.at, start = began, time.monotonic()
        while not self._stopped and self.at < last:
            self.at = min(last, began + time.monotonic() - start)
            self._refresh()
            time.sleep(FRAME)
        return "All answers have ended." if self.at == last else "Stopped."

    def _show(self) -> None:
        self._place.value = self._index
        self._picture.value = self.to_html()
