"""PrefillExplorer on the real model: chunks build the same cache, weights are the engine's; without a browser."""

from __future__ import annotations

import re
import threading

import pytest
import torch
from ipywidgets.widgets.widget import _instances
from widgets.events import VIEW, announced, click, control, pictures, problems, walk

from llmlesson.errors import LessonError
from llmlesson.views.prefill import WINDOW
from llmlesson.widgets import PrefillExplorer
from llmlesson.widgets.prefill_session import FIRST, LIMIT, PrefillSession

TEXT = "Why is the sky blue?"


@pytest.fixture(scope="module")
def engine(real):
    return real


@pytest.fixture
def session(engine):
    return PrefillSession(engine, TEXT)


@pytest.fixture
def explorer(engine):
    w = PrefillExplorer(engine, TEXT)
    yield w
    w.close()


def read_all(session, chunk):
    session.set_chunk(chunk)
    while not session.done:
        session.read_chunk()


def test_a_prompt_is_taken_in_the_chat_template_and_nothing_is_read_yet(session, engine):
    assert session.ids == engine.tokenizer.chat(TEXT)
    assert "".join(session.token_texts) == engine.tokenizer.decode(session.ids, special=True)
    assert session.read == 0
    assert session.candidates() == []


def test_each_pass_adds_its_chunk_and_the_last_what_is_left(session):
    session.set_chunk(16)
    lengths = []
    while not session.done:
        session.read_chunk()
        lengths.append(session.read)
    count = len(session.ids)
    assert lengths == [*range(16, count, 16), count]
    assert session.passes == [(a, min(a + 16, count)) for a in range(0, count, 16)]
    session.read_chunk()
    assert session.read == count, "at the end there is nothing to read"


@pytest.mark.parametrize("chunk", [3, 16])
def test_chunked_prefill_builds_the_cache_of_one_pass(session, engine, chunk):
    read_all(session, chunk)
    whole, token = engine.prefill(session.ids)
    for layer in range(whole.num_layers):
        torch.testing.assert_close(session.cache.keys(layer), whole.keys(layer), rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(session.cache.values(layer), whole.values(layer), rtol=1e-4, atol=1e-3)
    assert session.candidates()[0].token_id == token
    comparison = session.compare()
    differences = [
        (ours(layer) - theirs(layer)).abs().max().item()
        for layer in range(whole.num_layers)
        for ours, theirs in ((session.cache.keys, whole.keys), (session.cache.values, whole.values))
    ]
    assert comparison.difference == pytest.approx(max(differences), abs=1e-9)
    assert comparison.passes == len(session.passes)
    assert comparison.same_token


def test_the_comparison_notices_another_cache(session):
    read_all(session, 16)
    session.cache.values(3)[1, 5, 7] += 0.5
    assert session.compare().difference == pytest.approx(0.5, abs=1e-3)


def test_there_is_nothing_to_compare_in_one_pass_or_midway(session):
    read_all(session, LIMIT)
    assert session.compare() is None
    session.set_chunk(16)
    session.read_chunk()
    assert session.compare() is None


def test_attention_weights_are_the_engines(session, engine):
    read_all(session, 16)
    layer, head, count = 4, 5, len(session.ids)
    with engine.record([layer]) as recording:
        engine.prefill(session.ids)
    rows = session.weights(layer, head, session.columns(0, count))
    assert [len(row) for row in rows] == list(range(1, count + 1)), "causal: to itself and back"
    for t, row in enumerate(rows):
        assert row == pytest.approx(recording[layer].weights[head, t, : t + 1].tolist(), abs=1e-4)
    part = session.weights(layer, head, session.columns(10, 5))
    assert part[2] == pytest.approx(rows[12])
    assert sum(part[4]) == pytest.approx(1, abs=1e-5)


def test_lengths_are_those_of_the_vectors_in_the_cache(session):
    session.set_chunk(16)
    session.read_chunk()
    keys, values = session.lengths(session.columns(0, 20))
    assert len(keys) == len(values) == 30
    for shown, tensor in ((keys[7], session.cache.keys(7)), (values[7], session.cache.values(7))):
        norms = torch.stack([tensor[:, position].norm() for position in range(16)])
        assert shown == pytest.approx(((norms - norms.min()) / (norms.max() - norms.min())).tolist(), abs=1e-5)


def test_candidates_are_the_softmax_of_the_last_position(session, engine):
    read_all(session, 16)
    probabilities = engine.logits(session.ids)[-1].softmax(0)
    best = session.candidates()
    assert [c.token_id for c in best] == probabilities.topk(8).indices.tolist()
    assert best[0].before == pytest.approx(probabilities.max().item(), abs=1e-4)
    assert best[0].text == engine.tokenizer.decode([best[0].token_id])


def test_a_pass_that_fails_leaves_everything_as_it_was(session, engine, monkeypatch):
    session.set_chunk(16)
    session.read_chunk()
    before = session.read, list(session.passes), session.candidates()

    def broken(*args):
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.model), "_mlp", broken)
        with pytest.raises(RuntimeError):
            session.read_chunk()
    assert (session.read, session.passes, session.candidates()) == before
    assert engine.model.recording is None
    read_all(session, 16)
    assert session.compare().same_token


def test_a_chunk_has_at_least_one_token(session):
    with pytest.raises(LessonError, match="at least one token"):
        session.set_chunk(0)


def test_shown_at_once_and_without_a_kernel(explorer):
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    for text in ("▶ layer 0", "Attention, layer 0, head 0", "first token of the answer", "88.6 %", "<svg"):
        assert text in bundle["text/html"]
    assert re.match(r"(\d+) of \1 tokens read in 1 pass\. The KV cache holds [\d,]+ bytes", bundle["text/plain"])
    assert len(bundle["text/html"].encode()) + len(pictures(explorer).encode()) < 300_000, "the budget is 0.5 MB"


def test_chunk_by_chunk_the_columns_fill(explorer, engine):
    count = len(explorer.session.ids)
    control(explorer, "tokens in a chunk").value = "16"
    assert announced(explorer)[0].startswith(f"0 of {count} tokens read in 0 passes.")
    click(explorer, "Next chunk")
    assert explorer.session.read == 16
    assert announced(explorer)[-1] == "Pass 1 read positions 0 to 15."
    assert f"{16 * 46_080:,} bytes" in announced(explorer)[0]
    assert "nobody looks at these" in pictures(explorer)
    click(explorer, "Read the rest")
    assert explorer.session.done
    assert "Against one pass: largest difference in K and V" in announced(explorer)[0]
    assert "The same cache as in one pass?" in pictures(explorer)
    click(explorer, "Next chunk")
    assert "The whole prompt is read" in announced(explorer)[-1]
    click(explorer, "Start over")
    assert explorer.session.read == 0
    assert "not read yet" in pictures(explorer)


def test_layer_and_head_choose_the_heatmap(explorer):
    before = pictures(explorer)
    control(explorer, "layer").value = 4
    control(explorer, "query head").value = 5
    assert "Attention, layer 4, head 5 (it reads KV head 1)" in pictures(explorer)
    assert "▶ layer 4" in pictures(explorer)
    shown = [re.findall(r"→ \S+ \S+: (0\.\d+)", html) for html in (before, pictures(explorer))]
    assert len(shown[0]) == len(shown[1]) > 100
    assert shown[0] != shown[1], "other weights"
    assert control(explorer, "layer").options == tuple(range(30))


@pytest.mark.parametrize(("typed", "says"), [("2.5", "a whole number"), ("0", "at least 1"), ("9999", "at most 256")])
def test_a_chunk_that_cannot_be_is_said_and_not_made_fit(explorer, typed, says):
    read, chunk = explorer.session.read, explorer.session.chunk
    control(explorer, "tokens in a chunk").value = typed
    assert says in problems(explorer)[0]
    assert control(explorer, "tokens in a chunk").value == typed
    assert (explorer.session.read, explorer.session.chunk) == (read, chunk), "nothing was read anew"


def test_another_prompt_starts_empty(explorer, engine):
    control(explorer, "prompt").value = "Hello"
    assert explorer.session.ids == engine.tokenizer.chat("Hello")
    assert explorer.session.read == 0
    assert "Nothing is read yet" in announced(explorer)[-1]
    click(explorer, "Read the rest")
    assert explorer.session.done


def test_a_long_prompt_is_cut_said_so_and_shown_in_part(engine):
    w = PrefillExplorer(engine, "All work and no play. " * 45)
    s = w.session
    assert len(s.ids) == LIMIT < s.total
    assert s.read == FIRST, "no more before the first picture"
    assert f"(the first {LIMIT} of {s.total:,} tokens)" in announced(w)[0]
    assert w.first == FIRST - WINDOW
    first = control(w, "columns from position")
    field = next(part for part in walk(w.ui) if first in getattr(part, "children", ()))
    assert field.layout.display is None
    first.value = "3"
    assert "position 3 " in pictures(w)
    assert "position 2 " not in pictures(w)
    assert "0–2" in pictures(w)
    click(w, "Read the rest")
    assert s.done
    assert w.first == LIMIT - WINDOW, "the columns follow what is read"
    assert len(w.to_html().encode()) < 180_000
    w.close()


def test_stop_is_heard_between_two_chunks(explorer, monkeypatch):
    control(explorer, "tokens in a chunk").value = "4"
    reading, go_on = threading.Event(), threading.Event()
    read_chunk = explorer.session.read_chunk

    def held():
        read_chunk()
        reading.set()
        assert go_on.wait(30)

    monkeypatch.setattr(explorer.session, "read_chunk", held)
    control(explorer, "Read the rest").click()
    assert reading.wait(30)
    control(explorer, "Next chunk").click()  # does nothing while the other runs
    control(explorer, "Stop").click()
    go_on.set()
    assert explorer.wait(30)
    assert explorer.session.read == 4
    assert announced(explorer)[-1] == f"Stopped after 4 of {len(explorer.session.ids)} tokens."
    assert not control(explorer, "Next chunk").disabled


def test_two_explorers_on_one_engine_do_not_disturb_each_other(engine):
    one, other = PrefillExplorer(engine, TEXT), PrefillExplorer(engine, "What is rain?")
    for w in (one, other):
        control(w, "tokens in a chunk").value = "8"
    for w in (one, other):
        control(w, "Read the rest").click()
    for w in (one, other):
        assert w.wait(60)
        assert w.session.done
        assert w.session.comparison.same_token
        assert w.session.comparison.difference < 1e-2
        w.close()


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script><img src=x onerror=alert(1)>",
        "a\x07\x00\x1b[31mb",
        "שלום \u202e עולם",
        "x<y" * 1667,
        "",
    ],
)
def test_any_prompt_is_shown_as_text(explorer, text):
    control(explorer, "prompt").value = text
    control(explorer, "tokens in a chunk").value = "40"
    click(explorer, "Next chunk")
    html = pictures(explorer)
    assert "✗" not in html
    assert not any(tag in html for tag in ("<script", "<img"))
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", html)
    assert len(html.encode()) < 300_000


def test_an_error_in_a_click_is_shown(explorer, monkeypatch):
    control(explorer, "tokens in a chunk").value = "16"

    def broken():
        raise RuntimeError("no <memory>")

    monkeypatch.setattr(explorer.session, "read_chunk", broken)
    click(explorer, "Next chunk")
    assert announced(explorer)[-1] == "✗ Something went wrong: RuntimeError: no &lt;memory&gt;"
    assert not control(explorer, "Next chunk").disabled


def test_closing_leaves_nothing_behind_and_it_can_be_shown_again(engine):
    before = len(_instances)
    w = PrefillExplorer(engine, TEXT)
    w.to_html()
    assert len(_instances) == before, "no widget before it is shown"
    control(w, "layer").value = 3
    w.close()
    w.close()
    assert len(_instances) == before
    assert control(w, "layer").value == 3
    assert "▶ layer 3" in pictures(w)
    w.close()


def test_every_control_has_a_name(explorer):
    assert all(part.description for part in walk(explorer.ui) if hasattr(part, "disabled"))
