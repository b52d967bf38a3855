"""The pictures of a request: what they say, in whatever text, and that they are well-formed."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from llmlesson.views.request import tokens_line, waterfall
from llmlesson.views.request_map import STAGES, here, request_map

NASTY = ["<script>alert(1)</script>", "a\x00b\x1b[31m", "שלום עולם", "x" * 5000, "\"&'", "\n\n", "", "👩‍👩‍👧"]


def draw(texts=("In", " the", " realm"), decode=(0.05, 0.06), nbytes=(380, 390, 400), **kwargs):
    times = {"tokenize": 0.0005, "prefill": 0.2, "prompt_tokens": 38, **kwargs}
    return waterfall(decode=decode, cache_nbytes=nbytes, texts=texts, **times)


def svg_of(html):
    """The SVG, parsed: fails where it is not well-formed."""
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def texts_of(svg):
    return [element.text for element in svg.iter() if element.tag.endswith("text")]


def bars(html):
    """(x, width) of the bars of time, from the top."""
    work = ("f-wait", "f-prompt", "f-answer")
    rows = [e for e in svg_of(html).iter() if e.tag.endswith("rect") and e.get("class") in work]
    return [(float(e.get("x")), float(e.get("width"))) for e in rows]


def test_the_map_names_the_seven_stages_in_order_for_eyes_and_ears():
    svg = svg_of(request_map())
    spoken = svg.get("aria-label")
    places = [spoken.index(name) for name in STAGES]
    assert places == sorted(places)
    assert svg.get("role") == "img"
    drawn = " ".join(texts_of(svg))
    assert all(word in drawn for name in STAGES for word in name.split())


def test_a_note_stands_under_its_stage_and_is_escaped():
    html = request_map({"Prefill": "38 <b>tokens</b>\nat once"})
    assert "38 <b>tokens</b>" in texts_of(svg_of(html))
    assert "at once" in texts_of(svg_of(html))
    assert "<b>" not in html
    with pytest.raises(KeyError, match="there is no stage"):
        request_map({"Prefil": "x"})


def boxes(svg):
    """Each stage's box (left, top, right, bottom), by the number that stands in it, and the server's frame as 3."""
    rects = [e for e in svg.iter() if e.tag.endswith("rect")]
    texts = {e.text: e for e in svg.iter() if e.tag.endswith("text")}
    found = {}
    for rect in rects:
        left, top, wide, high = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        inside = [
            t for t, e in texts.items() if left < float(e.get("x")) < left + 20 and top < float(e.get("y")) < top + 30
        ]
        [number] = {int(re.match(r"\d", text)[0]) for text in inside if re.match(r"\d", text)}
        found[number] = (left, top, left + wide, top + high)
    return found


@pytest.mark.parametrize("notes", [{}, {"Prefill": "a\nb\nc\nd", "Decode": "one\ntwo"}])
def test_the_server_holds_what_happens_in_it_and_streaming_is_beside_decode(notes):
    found = boxes(svg_of(request_map(notes)))
    assert set(found) == set(range(1, 8))
    left, top, right, bottom = found[3]
    for number, (x, y, to_x, to_y) in found.items():
        inside = left < x and to_x < right and top < y and to_y < bottom
        assert inside == (number > 3), f"stage {number}"
    assert found[7][1] > found[6][3], "streaming is below decode, not after it"
    assert found[7][0] < found[6][2]
    assert found[7][2] > found[6][0]


def test_the_line_marks_where_you_are():
    way = "Client → Load balancer → LLM server [ Tokenizer → **▸ Prefill** → Decode ⇉ Streaming response ]"
    assert here("Prefill") == f"*You are here:* {way}"
    with pytest.raises(KeyError):
        here("Prefil")


def test_tokens_that_were_typed_have_a_ground_and_the_others_none():
    html = tokens_line(["<s>", "<b>", "!"], range(1, 3), ["Hi"])
    assert "Read: 3 tokens, of which you typed 2" in html
    assert [found.count("background:") > 1 for found in re.findall(r'<span role="listitem".*?</span>', html)] == [
        False,
        True,
        True,
        True,
    ]
    assert "<b>" not in html
    assert "Written" not in tokens_line(["<s>"], range(0), [])


def test_each_bar_begins_where_the_one_before_ended_and_is_as_wide_as_its_time():
    shown = bars(draw(tokenize=0.1))
    assert len(shown) == 4
    for (x, width), (following, _) in pairwise(shown):
        assert following == pytest.approx(x + width, abs=0.2)
    seconds = [0.1, 0.2, 0.05, 0.06]
    widths = [width for _, width in shown]
    assert [w / sum(widths) for w in widths] == pytest.approx([s / sum(seconds) for s in seconds], abs=0.002)


def test_the_first_token_comes_after_tokenizing_and_prefill():
    assert "first token after 300 ms" in texts_of(svg_of(draw(tokenize=0.1)))


def test_the_numbers_stand_in_the_picture_in_its_description_and_in_the_table():
    html = draw(nbytes=(1_751_040, 1_797_120, 1_843_200))
    table = html[html.index("<table") :]
    for size in ("1,751,040", "1,843,200"):
        assert f"{size} bytes" in texts_of(svg_of(html))
    assert "+46,080 each" in texts_of(svg_of(html))
    for size in ("1,751,040", "1,797,120", "1,843,200"):
        assert size in table
    spoken = svg_of(html).get("aria-label")
    for part in ("prefill of 38 tokens 200 ms", "2 decode steps, 110 ms", "1,751,040 bytes", "1,843,200 bytes"):
        assert part in spoken
    assert table.count("<tr") == 1 + 4


@pytest.mark.parametrize("text", NASTY)
def test_any_text_is_shown_and_none_is_markup(text):
    html = draw(texts=(text, text, text))
    svg_of(html)
    assert "<script" not in html
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", html)
    assert len(html) < 20_000


def test_an_answer_of_one_token_and_a_clock_that_stood_still():
    svg_of(draw(texts=("In",), decode=(), nbytes=(10,)))
    svg_of(draw(tokenize=0.0, prefill=0.0, decode=(0.0, 0.0)))


@pytest.mark.parametrize(("texts", "nbytes"), [(("In",), (1, 2, 3)), (("In", "a", "b"), (1, 2))])
def test_lengths_that_do_not_fit_are_refused(texts, nbytes):
    with pytest.raises(ValueError, match="2 decode steps need 3"):
        draw(texts=texts, nbytes=nbytes)


@pytest.mark.parametrize("html", [request_map(), draw()])
def test_both_themes_can_read_it(html):
    """Letters take the page's colour; nothing is black, white or opaque paper."""
    svg = svg_of(html)
    assert {e.get("fill") for e in svg.iter() if e.tag.endswith("text")} == {"currentColor"}
    assert not re.search(r"#fff\b|#ffffff|#000\b|#000000|white[^-]|black", html.split("</style>")[1])


@pytest.mark.parametrize("html", [request_map(), draw()])
def test_where_a_page_takes_the_tags_of_the_picture_out_its_description_is_left(html):
    """As JupyterLab does before a notebook is run: letters outside of `<text>` have no size, the description has."""
    svg = svg_of(html)
    assert re.match(r'<div [^>]*style="[^"]*font-size:0"', html)
    assert all(int(e.get("font-size")) > 0 for e in svg.iter() if e.tag.endswith("text"))
    description = ElementTree.fromstring(re.search(r"<p .*?</p>", html)[0])
    assert description.text == svg.get("aria-label")
    assert "font-size:14px" in description.get("style")
