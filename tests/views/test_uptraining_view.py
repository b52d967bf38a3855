"""The record of the short training, as a figure, a still, a table and words; and what the record has to hold."""

from __future__ import annotations

import json

import pytest

from llmlesson.lessons.uptraining import recorded
from llmlesson.views.uptraining import uptraining_picture

RECORD = {
    "model": "tiny",
    "merge": "mean",
    "text": "a <text>",
    "tokens_a_step": 254,
    "cpu_seconds": 600,
    "prompt": "Paris is",
    "runs": {
        "1": [
            {"step": 0, "perplexity": 18000.0, "other": 9000.0, "text": "-- <b>"},
            {"step": 50, "perplexity": 200.0, "other": 800.0, "text": " a city"},
        ],
        "3": [
            {"step": 0, "perplexity": 20.0, "other": 15.0, "text": " in France"},
            {"step": 20, "perplexity": 15.0, "other": 16.0, "text": " in France"},
        ],
    },
}


def test_all_points_are_in_the_figure_and_in_the_still():
    shown = uptraining_picture(RECORD)
    lines = [(list(trace.x), list(trace.y)) for trace in shown.figure.data]
    assert lines == [([0, 50], [18000, 200]), ([0, 50], [9000, 800]), ([0, 20], [20, 15])]
    assert shown.html.count("<circle") == 6
    assert "step 50: 200</title>" in shown.html
    assert "18,000" in shown.html.partition("<details")[2]
    assert "1 KV head: text like the training’s: 18,000 before, 200 after 50 steps" in shown.text


def test_what_the_model_wrote_is_text_and_not_markup():
    assert "<b>" not in uptraining_picture(RECORD).html
    assert "&lt;text&gt;" in uptraining_picture(RECORD).html


def test_a_page_without_a_kernel_has_a_picture_of_the_same_data():
    bundle = uptraining_picture(RECORD)._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/html", "text/plain"}
    assert len(json.dumps(bundle)) < 100_000


@pytest.fixture(scope="module")
def record():
    return recorded()


def test_the_record_is_of_two_runs_from_the_same_kind_of_start(record):
    merged, untouched = record["runs"]["1"], record["runs"]["3"]
    assert [at["step"] for at in merged] == sorted({at["step"] for at in merged})
    assert merged[0]["step"] == untouched[0]["step"] == 0
    assert merged[-1]["perplexity"] < merged[0]["perplexity"] / 50  # it heals …
    assert merged[-1]["perplexity"] > 2 * untouched[-1]["perplexity"]  # … and is not healed
    assert untouched[-1]["perplexity"] < untouched[0]["perplexity"]  # part of it is getting used to the text
