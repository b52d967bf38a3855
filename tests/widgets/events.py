"""A learner's hands, without a browser: find a control by its name, click it, read what is announced."""

from __future__ import annotations

import re

import ipywidgets

VIEW = "application/vnd.jupyter.widget-view+json"


def walk(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def control(widget, name):
    """The one control of a shown widget that is called `name`."""
    found = [part for part in walk(widget.ui) if getattr(part, "description", None) == name]
    assert len(found) == 1, f"{len(found)} controls are called {name!r}"
    return found[0]


def click(widget, name, seconds=60):
    """Click a button and wait until its work has ended."""
    control(widget, name).click()
    assert widget.wait(seconds)


def pictures(widget):
    parts = [part.value for part in walk(widget.ui) if isinstance(part, ipywidgets.HTML)]
    return "".join(part for part in parts if "onload" not in part)  # without the frame's style sheet


def announced(widget):
    """The lines that a screen reader is told, top to bottom."""
    found = re.findall(r'role="status" aria-live="polite"[^>]*><bdi>(.*?)</bdi>', pictures(widget), re.DOTALL)
    return [line for line in found if line]


def problems(widget):
    """What is said to be wrong, below the fields, top to bottom."""
    return re.findall(r'role="alert"><bdi>(.*?)</bdi>', pictures(widget), re.DOTALL)
