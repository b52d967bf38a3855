"""A prompt read on this machine, and what other machines allow, for models of several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

from llmlesson.measure.data_sheets import DataSheet
from llmlesson.measure.roofline import Placement, Roofline
from llmlesson.views.machines import HERE, machines_figure
from llmlesson.views.plot import Pictured
from llmlesson.widgets.base import LessonWidget


class MachineExplorer(LessonWidget):
    """Choose a machine and a model, and see its limits beside what was measured; shown as a cell's last line.

    limits, points: what was measured here. cards: machines to compute for. models: ModelConfig by name, at least one.
    """

    def __init__(
        self,
        limits: Roofline,
        points: Mapping[str, Placement],
        cards: Sequence[DataSheet],
        models: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self._limits, self._points, self._models = limits, points, models
        self._cards: dict[str, DataSheet | None] = {HERE: None, **{card.name: card for card in cards}}
        self.machine = list(self._cards)[-1]
        self.model = list(models)[min(1, len(models) - 1)]

    def to_html(self) -> str:
        return self._pictured().html

    def _plain(self) -> str:
        return self._pictured().text

    def _pictured(self) -> Pictured:
        card, config = self._cards[self.machine], self._models[self.model]
        return machines_figure(self._limits, self._points, card, f"a model of {self.model}", config)

    def _build(self) -> list[ipywidgets.Widget]:
        wide = {"style": {"description_width": "initial", "button_width": "auto"}}
        machines = [(HERE if card is None else f"{name} (computed)", name) for name, card in self._cards.items()]
        choice = ipywidgets.ToggleButtons
        machine = choice(options=machines, value=self.machine, description="machine", **wide)
        model = choice(options=list(self._models), value=self.model, description="model", **wide)
        self._watch(machine, lambda name: setattr(self, "machine", name))
        self._watch(model, lambda name: setattr(self, "model", name))
        self._picture = ipywidgets.Output()
        return [machine, model, self._picture]

    def _show(self) -> None:
        data = self._pictured()._repr_mimebundle_()
        self._picture.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
