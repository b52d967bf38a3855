"""One token's way through attention as a picture: what is drawn in which phase, and what the words say."""

from __future__ import annotations

import math
import re

import pytest

from llmlesson.views.attention import (
    LAST,
    Look,
    Stream,
    attention_picture,
    attention_table,
    head_map,
    in_words,
    rope_clocks,
)

SHARES = [0.5, 0.1, 0.4]


@pytest.fixture
def look():
    return Look(
        texts=["<s>", " one", " <b>", " later"],
        token=2,
        layer=3,
        head=1,
        kv_head=0,
        scores=[math.log(share) for share in SHARES],
        shares=SHARES,
        lengths=[0.1, 1.0, 2.0],
        cosines=[0.2, 0.0, 0.99],
        stream=Stream(10, 2, 90, 3, 60, 11, 20),
    )


def test_the_words_name_the_shares_and_what_arrives(look):
    says = in_words(look)
    assert "50 % to “<s>”" in says
    assert "40 % to “·<b>”" in says
    assert "The largest part of what it takes comes from “·<b>”." in says
    assert "Of “<s>” little arrives, because its value is short." in says


def test_each_phase_adds_its_column(look):
    heads = ["ask", "compare", None, "share", "take", "add"]
    for phase in range(LAST + 1):
        html = attention_picture(look, phase)
        for number, head in enumerate(heads, start=1):
            if head:
                assert (f">{head}</text>" in html) == (phase >= number)
        assert ("the mask hides it" in html) == (phase >= 3)
        assert in_words(look, phase)


def test_the_last_token_has_nothing_to_hide(look):
    last = Look(**{**vars(look), "texts": look.texts[:3]})
    assert "the mask hides it" not in attention_picture(last)


def test_bars_are_as_long_as_the_shares(look):
    bars = re.findall(r'<rect x="394" y="[\d.]+" width="([\d.]+)" height="12"', attention_picture(look))
    assert [float(bar) / 150 for bar in bars] == pytest.approx(SHARES)


def test_tokens_are_escaped(look):
    for html in (attention_picture(look), attention_table(look)):
        assert "<b>" not in html
        assert "&lt;b&gt;" in html


def test_the_table_adds_up(look):
    cells = re.findall(r"<bdi>(-?[\d.]+)%</bdi>", attention_table(look))
    shares, parts = cells[::2], cells[1::2]
    assert sum(map(float, shares)) == pytest.approx(100)
    assert sum(map(float, parts)) == pytest.approx(100, abs=0.2)


def test_the_map_has_a_cell_for_every_head_and_a_frame_at_the_chosen_one():
    html = head_map([[0.0, 0.5], [1.0, 0.25], [0.1, 0.2]], layer=1, head=0)
    assert html.count("<title>") == 6
    assert "layer 1, head 0: 100% to other words" in html
    assert "layer 1, head 0 is chosen" in html


@pytest.mark.parametrize("shift", [0, 100])
def test_hands_are_apart_by_the_distance_alone(shift):
    html = rope_clocks(30 + shift, 27 + shift, [1.0, 0.1], [0, 1])
    assert re.findall(r">([\d]+°) apart<", html) == [f"{math.degrees(3):.0f}°", f"{math.degrees(0.3):.0f}°"]


def test_whole_turns_do_not_count():
    assert ">90° apart<" in rope_clocks(1, 0, [2 * math.pi + math.pi / 2], [0])
