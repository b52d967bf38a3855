"""The calculator's tables and curve say what sizing says."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from llmlesson.sizing import fit, kv_cache
from llmlesson.views.calculator import POWERS, Answer, arithmetic, curves, curves_table, fit_table, headline, size_table


def answer(name, tokens=8192, batch=1, gpu="H100-80GB"):
    curve = tuple((2**p, kv_cache(name, 2**p, batch).nbytes) for p in POWERS)
    return Answer(kv_cache(name, tokens, batch), curve, fit(name, gpu, context=tokens))


@pytest.fixture(scope="module")
def both():
    return [answer("Llama-3.1-8B"), answer("Llama-2-7b-hf")]


def svg_of(html):
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    return ElementTree.fromstring(pictures[-1])  # those before it belong to the legend


def texts_of(svg):
    return [element.text for element in svg.iter() if element.tag.endswith("text")]


def test_exact_bytes_gb_and_gib_of_both_models(both):
    html = size_table(both)
    for text in ("1,073,741,824", "4,294,967,296", "1.074", "1.000", "4.295", "4.000", "131,072", "524,288"):
        assert f"<bdi>{text}</bdi>" in html
    assert "4.00 × as large" in html
    assert "32 GQA" in html
    assert "32 MHA" in html
    assert "× smaller" in size_table(both[::-1])
    assert "the same" in size_table([both[0], both[0]])


def test_a_window_shows_its_second_growth():
    assert "once every window is full" in size_table([answer("google/gemma-3-1b-it")])
    assert "once every window is full" not in size_table([answer("Llama-3.1-8B")])


def test_what_fits_is_the_plan(both):
    html = fit_table(both)
    for plan in (one.plan for one in both):
        for number in (plan.users, plan.max_context):
            assert f"<bdi>{number:,}</bdi>" in html
    assert "made for 131,072 tokens" in html
    assert html.index("H100-80GB") < html.index("users at once")


def test_weights_that_do_not_fit_are_said_so():
    big = [answer("Llama-3.1-70B", gpu="T4-16GB")]
    assert "nothing: the weights don’t fit" in fit_table(big)
    assert "The weights alone don't fit on T4-16GB." in headline(big)
    curves(big)


def test_the_headline_answers_in_a_sentence(both):
    assert headline(both[:1]) == (
        "Llama-3.1-8B, 8,192 tokens, bf16: 1,073,741,824 bytes = 1.074 GB = 1.000 GiB. "
        "It fits on H100-80GB beside the weights."
    )
    assert "× 100 sequences" in headline([answer("Llama-3.1-8B", batch=100)])
    assert "It does not fit on H100-80GB" in headline([answer("Llama-3.1-8B", batch=100)])


def test_without_a_plan_the_reason_stands_there():
    whole = answer("Llama-3.1-8B")
    unknown = Answer(whole.size, whole.curve, None, "nobody counted")
    assert "Llama-3.1-8B: nobody counted" in fit_table([unknown])
    assert "<table" not in fit_table([unknown])
    assert headline([unknown]).endswith("GiB.")
    svg_of(curves([unknown]))


def test_the_arithmetic_is_written_out_for_both(both):
    html = arithmetic(both)
    assert "8 heads × 128 values × 8,192 cells × 2 bytes = 16,777,216" in html
    assert "32 heads × 128 values × 8,192 cells × 2 bytes = 67,108,864" in html


def test_the_curve_has_a_point_with_its_size_at_each_context(both):
    svg = svg_of(curves(both))
    titles = [element.text for element in svg.iter() if element.tag.endswith("title")]
    assert len(titles) == 2 * len(POWERS)
    assert "Llama-3.1-8B, 8,192 tokens: 1.07 GB = 1.00 GiB" in titles
    assert "memory of H100-80GB" in texts_of(svg)
    assert "left for Llama-2-7b-hf" in texts_of(svg)
    assert {"1.07 GB = 1.00 GiB", "4.29 GB = 4.00 GiB"} <= set(texts_of(svg))


def test_twice_the_context_is_the_same_step_up_everywhere(both):
    """A straight line on two logarithmic axes: the cache of full attention grows in proportion."""
    points = [
        (float(e.get("cx")), float(e.get("cy")))
        for e in svg_of(curves(both[:1])).iter()
        if e.tag.endswith("circle") and e.get("r") == "4"
    ]
    assert len(points) == len(POWERS)
    rises = [before[1] - after[1] for before, after in itertools.pairwise(points)]
    assert max(rises) - min(rises) < 0.3
    assert min(rises) > 0


def test_names_of_levels_never_overlap(both):
    """The two levels are 0.02 decades apart; their names must not be."""
    places = sorted(
        float(e.get("y"))
        for e in svg_of(curves(both)).iter()
        if e.tag.endswith("text") and (e.text.startswith("left for") or e.text.startswith("memory of"))
    )
    assert len(places) == 3
    assert min(after - before for before, after in itertools.pairwise(places)) >= 12


def test_the_two_lines_differ_by_more_than_colour(both):
    lines = re.findall(r'<path d="M[^"]+ L[^"]*" class="s-cache"[^/]*/>', curves(both))
    assert ["stroke-dasharray" in line for line in lines] == [False, True]
    assert "dashed line, squares" in curves(both)
    assert "dashed line, squares" not in curves(both[:1])


def test_the_curve_has_a_twin_to_read(both):
    html = curves_table(both)
    assert html.startswith("<details")
    assert "137.44 GB = 128.00 GiB" in html
    assert html.count("<tr") == 1 + len(POWERS)


@pytest.mark.parametrize("tokens", [1, 3, 10**9])
def test_contexts_off_the_curve(tokens):
    curves([answer("Llama-3.1-8B", tokens)])


def test_models_with_states_are_drawn():
    svg_of(curves([answer("ai21labs/AI21-Jamba-1.5-Mini"), answer("Qwen/Qwen3-Next-80B-A3B-Thinking")]))
