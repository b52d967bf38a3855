"""Prefill in one picture: all numbers stand in it, and whatever the token is, it stays one."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from views.test_markup import NASTY

from llmlesson.views.prefill_flow import prefill_flow


def picture(first="In"):
    html = prefill_flow(38, 576, 30, 3, 64, 1_751_040, 49_152, first)
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def texts(svg):
    return [element.text for element in svg.iter() if element.tag.endswith("text")]


def test_it_names_every_number():
    svg = picture()
    for shown in (" ".join(texts(svg)), svg.get("aria-label")):
        for number in ("38", "576", "30 layers", "1,751,040 bytes", "49,152", "“In”"):
            assert number in shown
    assert "30 layers × (K and V) × 3 heads × 38 positions × 64 values" in texts(svg)


def test_all_of_it_lies_inside():
    svg = picture()
    _, _, width, height = map(float, svg.get("viewBox").split())
    for box in (element for element in svg.iter() if element.tag.endswith("rect")):
        assert 0 <= float(box.get("x")) < float(box.get("x")) + float(box.get("width")) <= width
        assert 0 <= float(box.get("y")) < float(box.get("y")) + float(box.get("height")) <= height


@pytest.mark.parametrize("text", NASTY)
def test_any_token_is_shown_as_text(text):
    assert len(list(picture(text).iter())) == len(list(picture().iter()))
