"""What a draw chooses from: bars are the probabilities given, and what is ruled out has none."""

from __future__ import annotations

import json
import re

import pytest
import torch

from llmlesson import Sampling
from llmlesson.views.choice import choices

SCORES = torch.tensor([3.0, 2.0, 1.0, 0.0, -1.0, -1.0])
SETTINGS = {
    name: list(setting.explain(SCORES).values())[-1]
    for name, setting in {"as it is": Sampling(temperature=1.0), "top-k 2": Sampling(temperature=1.0, top_k=2)}.items()
}
TEXTS = [" a", "<b>", "\n"]


@pytest.fixture(scope="module")
def shown():
    return choices([0, 1, 2], TEXTS, SETTINGS)


def test_each_setting_has_its_bars(shown):
    for bar, (name, probabilities) in zip(shown.figure.data, SETTINGS.items(), strict=True):
        assert bar.name == name
        assert list(bar.y) == pytest.approx((100 * probabilities[:3]).tolist())


def test_what_is_ruled_out_is_said_to_be(shown):
    as_it_is, top_k = shown.figure.data
    assert "ruled out" not in str(as_it_is.hovertext)
    assert list(top_k.text) == ["", "", "×"]
    assert top_k.hovertext[2].endswith("ruled out")
    assert shown.html.count(">×<") == 1


def test_what_the_others_get_is_said(shown):
    rest = 100 * float(SETTINGS["as it is"][3:].sum())
    assert f"3 others: {rest:.0f} %" in shown.html
    assert "no others" in shown.html


def test_the_still_is_on_one_scale_and_escaped(shown):
    heights = [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', shown.html)]
    shares = [float(s) for p in SETTINGS.values() for s in p[:3] if s]
    assert [h / max(heights) for h in heights] == pytest.approx([s / max(shares) for s in shares], abs=0.01)
    assert "<b>" not in shown.html


def test_it_is_small_and_fetches_nothing():
    scores = torch.arange(50_000) / 1_000
    many = {f"setting {n}": scores.softmax(dim=0) for n in range(6)}
    bundle = choices(range(49_980, 50_000), [f" token {n}" for n in range(20)], many)._repr_mimebundle_()
    assert len(json.dumps(bundle)) < 100_000
    assert "http" not in bundle["text/html"].replace("http://www.w3.org/2000/svg", "")
