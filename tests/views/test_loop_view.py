"""The picture of the decode loop: what it says, and that it is well-formed."""

import re
from xml.etree import ElementTree

import pytest

from llmlesson.views.loop import ARROWS, BOXES, loop_map


def svg_of(html):
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def test_every_box_is_drawn_and_spoken_and_every_arrow_has_a_head():
    svg = svg_of(loop_map())
    drawn = [element.text for element in svg.iter() if element.tag.endswith("text")]
    for name, (_, _, _, note) in BOXES.items():
        assert name in drawn
        assert note in drawn
        assert f"{name}: {note}" in svg.get("aria-label")
    heads = [e for e in svg.iter() if e.tag.endswith("path") and e.get("fill") == "currentColor"]
    assert len(heads) == len(ARROWS)


def test_the_arrows_go_round():
    following = {start: end for start, end, word in ARROWS if word != "yes"}
    place, way = "Prefill", []
    while place not in way:
        way.append(place)
        place = following[place]
    assert place == "Scores"
    assert set(way) == set(BOXES) - {"End"}


def test_a_note_stands_in_place_of_the_usual_line_and_is_escaped():
    html = loop_map({"Decode": "7 <b>steps</b>\nin all"})
    drawn = [element.text for element in svg_of(html).iter() if element.tag.endswith("text")]
    assert {"7 <b>steps</b>", "in all"} <= set(drawn)
    assert BOXES["Decode"][3] not in drawn
    assert "<b>" not in html
    with pytest.raises(KeyError, match="there is no box"):
        loop_map({"Decod": "x"})
