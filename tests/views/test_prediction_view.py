"""The question and the outcome as HTML."""

from __future__ import annotations

import pytest

from llmlesson.views.prediction import outcome, plain, question, verdict


def test_the_question_shows_every_choice_escaped():
    html = question("Is 1 < 2?", ["yes", "<script>no</script>"])
    assert "Is 1 &lt; 2?" in html
    assert "<bdi>yes</bdi>" in html
    assert "&lt;script&gt;no&lt;/script&gt;" in html
    assert "<script" not in html


def test_without_a_prediction_the_truth_is_folded_away():
    html = outcome("Which?", "all 38", "It reads first.")
    assert "You made no prediction" in html
    folded = html[html.index("<details>") : html.index("</details>")]
    assert "all 38" in folded
    assert "It reads first." in folded
    assert "all 38" not in html.replace(folded, "")
    assert "<details open" not in html


def test_with_a_prediction_both_stand_in_the_open():
    html = outcome("Which?", "all 38", "It reads first.", answer="half")
    assert "<details" not in html
    assert html.index("half") < html.index("not what was measured") < html.index("all 38") < html.index("reads first")


@pytest.mark.parametrize(
    ("truth", "answer", "words"),
    [
        ("a", "a", "✓ as measured"),
        ("a", "b", "✗ not what was measured"),
        (38.0, 38.0, "✓ as measured"),
        (38.0, 8.0, "4.8 times too small"),
        (46_080.0, 4.0, "11,520 times too small"),
        (38.0, 40.0, "a little too large"),
        (38.0, 380.0, "10 times too large"),
        (0.0, 5.0, "too large"),
        (5.0, -1.0, "too small"),
    ],
)
def test_verdicts(truth, answer, words):
    assert verdict(truth, answer) == words


@pytest.mark.parametrize(
    ("answer", "unit", "text"),
    [
        (46_080.0, "bytes", "46,080 bytes"),
        (0.5, "", "0.5"),
        (1_234_567.25, "", "1,234,567.25"),
        ("all", "bytes", "all"),
    ],
)
def test_plain(answer, unit, text):
    assert plain(answer, unit) == text
