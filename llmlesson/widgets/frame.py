"""The box around each live widget: its colours, its keys, and what it says when its kernel is gone."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets

from llmlesson.views.style import SHEET

GONE = (
    "The kernel that made this widget was restarted or shut down, so it can’t respond any more. "
    "Run its cell again (after the cells above it)."
)

# JupyterLab takes keys for its shortcuts wherever the focus is in a notebook: an "m" typed on a button would turn the
# cell into text, and the widget would be gone. It leaves alone an element with this attribute, and only the one that
# has the focus counts. ipywidgets can't set attributes, so the style sheet of the frame does it once it is there.
KEEP_KEYS = (
    "this.closest('.ll').addEventListener('focusin',"
    "event=>event.target.setAttribute('data-lm-suppress-shortcuts','true'))"
)

CSS = f"""
.ll.llmlesson {{ overflow: visible }}
.ll .jupyter-button, .ll select, .ll input[type=text] {{ min-height: 36px; height: auto; border-radius: 6px }}
.ll .jupyter-button {{ border: 1px solid var(--wait); background: transparent; color: inherit; line-height: 1.4 }}
.ll .jupyter-button.main {{ background: var(--ink); border-color: var(--ink); color: var(--paper); font-weight: 600 }}
.ll .jupyter-button.mod-active {{ border: 2px solid var(--ink); font-weight: 600 }}
.ll .jupyter-button:focus-visible, .ll :is(input, select, textarea):focus-visible {{
  outline: 3px solid var(--prompt); outline-offset: 1px }}
.ll .widget-hbox {{ align-items: flex-start }}
.ll .widget-inline-hbox {{ height: auto; min-height: 36px; align-items: center }}
.ll [role=alert] {{ color: var(--broken); line-height: 1.4; max-width: 34em; white-space: normal }}
.ll.llmlesson.jupyter-widgets-disconnected::before {{
  content: "✗ {GONE}"; display: block; font: 600 14px/1.4 system-ui, sans-serif; padding: 6px 10px; margin: 4px 0;
  color: inherit; border: 2px dashed var(--broken) }}
.ll.llmlesson .jupyter-widgets-disconnected::before {{ content: none }}
.ll.llmlesson.jupyter-widgets-disconnected > * {{ opacity: .6 }}
"""


def framed(rows: Sequence[ipywidgets.Widget]) -> ipywidgets.VBox:
    """`rows` from top to bottom, as one widget in the course's style, that keeps its keys to itself."""
    sheet = ipywidgets.HTML(f'{SHEET}<style onload="{KEEP_KEYS}">{CSS}</style>', layout={"height": "0", "margin": "0"})
    return ipywidgets.VBox([*rows, sheet]).add_class("ll").add_class("llmlesson")
