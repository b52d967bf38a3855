"""The pictures of sizing: what they show is what the text twin says, and both come from the same sizes."""

from __future__ import annotations

import pytest

from llmlesson.sizing import kv_cache
from llmlesson.views import sizes as views

MODELS = ("Llama-2-7b-hf", "gemma-3-1b-it", "AI21-Jamba-1.5-Mini")


def test_curves_are_the_sizes():
    figure = views.size_curves(MODELS, (128, 4096), gpus=("T4-16GB",))
    for model, trace in zip(MODELS, figure.data, strict=False):
        assert list(trace.y) == [kv_cache(model, tokens).nbytes / 10**9 for tokens in (128, 4096)]
        assert model in trace.name
    assert figure.data[-1].y[0] == pytest.approx(15360 * 2**20 / 10**9)
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    lines = figure.data[: len(MODELS)]
    assert len({trace.line.dash for trace in lines}) == len({trace.line.color for trace in lines}) == len(MODELS)
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
    layout = make().layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert layout.font.color == views.GREY
