"""Pictures of what is kept: to scale, and with the words that say the same."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from llmlesson.sizing import Attention, Layer, kv_cache
from llmlesson.views.kept import Kept, kept_bars, kept_bars_text, latent_picture, window_picture, window_picture_text

ROWS = [Kept("Large", "MHA", 8_192, "each its own"), Kept("Small", "GQA", 2_048, "four <share> one")]


def svg_of(html):
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def boxes(html):
    return [box for box in svg_of(html).iter() if box.tag.endswith("rect")]


def widths(html):
    return [float(box.get("width")) for box in boxes(html)]


def texts(html):
    return [element.text for element in svg_of(html).iter() if element.tag.endswith("text")]


def test_bars_are_as_long_as_what_is_kept():
    large, large_values, small, small_values = widths(kept_bars(ROWS))
    assert large == pytest.approx(4 * small, rel=0.01)
    assert (large, small) == (large_values, small_values)
    [latent] = boxes(kept_bars([Kept("Latent", "MLA", 576, "one for all")]))
    assert latent.get("class") == "f-cache"


def test_bars_say_their_numbers_and_text_can_hold_anything():
    html = kept_bars(ROWS)
    assert "8,192 numbers: each its own" in texts(html)
    assert "2,048 numbers: four <share> one" in texts(html)
    for line in kept_bars_text(ROWS).splitlines():
        assert line in svg_of(html).get("aria-label")


def test_areas_of_the_latent_are_to_scale():
    html = latent_picture(hidden=7_168, latent=512, position=64, heads=128, unpacked=40_960)
    areas = [float(box.get("width")) * float(box.get("height")) for box in boxes(html)]
    assert areas == pytest.approx([7_168, 512, 40_960 / 2, 40_960 / 2, 64], rel=0.02)  # two of them: K over V
    not_kept = [box.get("stroke-dasharray") is not None for box in boxes(html)]
    assert not_kept == [False, False, True, True, False]
    assert "512 + 64 numbers, kept" in texts(html)
    assert "K and V of 128 heads" in texts(html)


def windows(tokens):
    attention = Attention(1, 64, 64)
    full, sliding = Layer("full", (attention,)), Layer("sliding", (Attention(1, 64, 64, window=100),))
    return kv_cache([sliding, sliding, full], tokens)


def test_a_windowed_layer_is_drawn_at_the_newest_tokens():
    html = window_picture(windows(400))
    frame, *lines = boxes(html)
    reach = [float(line.get("width")) / float(frame.get("width")) for line in lines]
    assert reach == pytest.approx([0.25, 0.25, 1], abs=0.01)
    right = float(frame.get("x")) + float(frame.get("width"))
    assert [float(line.get("x")) + float(line.get("width")) for line in lines] == pytest.approx([right] * 3, abs=0.1)


def test_windows_in_words():
    assert window_picture_text(windows(400)).splitlines() == [
        "1 layer keeps all 400 tokens",
        "2 layers keep the last 100 tokens",
    ]
    assert window_picture_text(windows(50)) == "3 layers keep all 50 tokens"
