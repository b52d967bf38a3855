"""The pictures of sizing: what they show is what the text twin says, and both come from the same sizes."""

from __future__ import annotations

import itertools
import math

import pytest

from llmlesson.sizing import kv_cache
from llmlesson.views import sizes as views
from llmlesson.views.plot import CLEAR
from llmlesson.views.style import PLOT_FONT

MODELS = ("Llama-2-7b-hf", "gemma-3-1b-it", "AI21-Jamba-1.5-Mini")


def test_curves_are_the_sizes():
    figure = views.size_curves(MODELS, (128, 4096), gpus=("T4-16GB",))
    for model, trace in zip(MODELS, figure.data[1:], strict=True):
        assert list(trace.y) == [kv_cache(model, tokens).nbytes / 10**9 for tokens in (128, 4096)]
        assert model in trace.name
    assert figure.data[0].y[0] == pytest.approx(15360 * 2**20 / 10**9)
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert len({trace.line.dash for trace in figure.data[1:]}) == len(MODELS)
    names = [annotation.text for annotation in figure.layout.annotations]
    assert sorted(names) == sorted(trace.name.replace("T4", "memory of T4") for trace in figure.data)
    text = views.size_curves_text(MODELS, (128, 4096), gpus=("T4-16GB",))
    assert f"{kv_cache('Llama-2-7b-hf', 4096).nbytes / 10**9:.3g}" in text
    assert "Memory in GB: T4-16GB 16.1" in text


def test_layer_bars_are_the_layers():
    size = kv_cache("gemma-3-1b-it", 4096)
    figure = views.layer_bars(size)
    heights = {int(x): y for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True)}
    assert heights == {layer.index: layer.nbytes / 10**6 for layer in size.per_layer}
    assert [trace.name for trace in figure.data] == ["sliding-window attention", "full attention"]
    lines = views.layer_bars_text(size).splitlines()[1:]
    assert len(lines) == len(size.per_layer)
    assert f"{size.per_layer[5].nbytes:,} bytes" in lines[5]
    assert lines[5].count("█") > lines[4].count("█") > 0


def test_article_table_says_that_only_mha_takes_hundreds_of_kilobytes():
    html, text = views.article_table(), views.article_table_text()
    for said in ("524,288 bytes", "57,344 bytes", "32 MHA", "524.29 GB = 488.28 GiB", "57.34 MB = 54.69 MiB"):
        assert said in html
        assert said in text
    assert "background:transparent" in html
    assert 'scope="row"' in html


def test_names_are_escaped(tmp_path):
    path = tmp_path / "<b>&.json"
    path.write_text('{"model_type": "llama"}')
    html = views.article_table([path])
    assert "<b>&.json" not in html
    assert "&lt;b&gt;&amp;.json" in html


@pytest.mark.parametrize(
    "make", [lambda: views.size_curves(MODELS, (128,)), lambda: views.layer_bars(kv_cache("gpt2", 9))]
)
def test_figures_show_through_on_any_theme(make):
    layout = make().layout.template.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == CLEAR
    assert PLOT_FONT in layout.font.family


def test_names_of_lines_that_end_together_stay_apart():
    models = ("Llama-3.1-8B", "Mistral-7B-v0.3", "Qwen3-8B")  # the first two: the same size to the byte
    figure = views.size_curves(models, (128, 4096), gpus=())
    spans = [math.log10(value) for trace in figure.data for value in trace.y]
    pixels = 332 / 1.1 / (max(spans) - min(spans))
    places = sorted(note.y * pixels + note.yshift for note in figure.layout.annotations)
    assert all(upper - lower >= 14.9 for lower, upper in itertools.pairwise(places))


def test_the_still_shows_the_same_sizes_and_names_all_lines():
    pictured = views.sizes_figure(MODELS, (128, 4096), gpus=("T4-16GB",))
    for model in MODELS:
        assert f"{kv_cache(model, 4096).nbytes:,} bytes" in pictured.html
        assert f">{model} (" in pictured.html
    assert ">memory of T4-16GB<" in pictured.html
    assert pictured.text == views.size_curves_text(MODELS, (128, 4096), gpus=("T4-16GB",))


def test_hovering_shows_exact_bytes():
    figure = views.size_curves(MODELS, (128, 4096), gpus=())
    for model, trace in zip(MODELS, figure.data, strict=True):
        assert trace.customdata[1][0].startswith(f"{kv_cache(model, 4096).nbytes:,} bytes")
