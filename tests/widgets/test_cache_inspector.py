"""CacheSession against the cache itself, and CacheInspector by simulated events."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch
from widgets.events import VIEW, announced, click, control, pictures, problems

from llmlesson import LessonError
from llmlesson.sizing import kv_cache
from llmlesson.widgets import CacheInspector
from llmlesson.widgets.cache_session import CacheSession, Change


@pytest.fixture
def session(tiny_engine):
    return CacheSession(tiny_engine, "a1 b ab", chat=False)


@pytest.fixture
def inspector(tiny_engine):
    made = CacheInspector(tiny_engine, "a1 b ab a 12 a", chat=False)
    assert made.ui is not None
    yield made
    made.close()


def test_predicted_is_measured_after_every_step(session):
    for _ in range(3):
        assert session.predicted == session.measured == session.cache.nbytes
        assert sum(measured for _, measured in session.by_layer()) == session.measured
        assert all(predicted == measured for predicted, measured in session.by_layer())
        session.step()


def test_the_prediction_is_that_of_sizing(real):
    session = CacheSession(real, "Hello")
    assert session.predicted == kv_cache("smollm2-135m", session.cache.length, dtype="fp32").nbytes
    assert session.formula.startswith("2 (K and V) × 30 layers × 3 KV heads × 64 values × 4 bytes × ")


def test_a_wrong_size_would_show(session, monkeypatch):
    monkeypatch.setattr(type(session.cache), "nbytes", 7)
    assert session.predicted != session.measured


def test_what_each_step_changed(session):
    n, column = session.cache.length, session.cache.nbytes // session.cache.length
    assert session.change == Change("Prefill", 0, n, n * column, True)
    session.step()
    assert session.change == Change("Decode step 1", n, n + 1, column, True)
    session.step()
    session.back()
    assert session.change == Change("Back", n + 2, n + 1, -column, True)
    session.step()
    session.reset()
    assert session.change == Change("Reset", n + 2, n, -2 * column, True)
    before = session.change
    with pytest.raises(LessonError):
        session.back()
    assert session.change is before


def test_a_change_of_older_positions_would_be_seen(session, monkeypatch):
    step = session.request.step

    def spoiling_step():
        step()
        session.cache.values(1)[0, 0, 0] += 1

    monkeypatch.setattr(session.request, "step", spoiling_step)
    session.step()
    assert session.change.kept is False


def test_the_window_holds_the_caches_numbers(session):
    length = session.cache.length
    first, values = session.window("V", 1, 1, None, 3)
    assert first == length - 3
    assert torch.equal(torch.tensor(values), session.cache.values(1)[1, -3:])
    first, values = session.window("K", 0, 1, 1, 4)
    assert (first, len(values)) == (0, 2)
    assert torch.equal(torch.tensor(values), session.cache.keys(0)[1, :2])
    assert session.window("K", 0, 0, 999, 2)[0] == length - 2
    assert session.strength("K")[1][0] == pytest.approx(float(session.cache.keys(1)[0].abs().mean()))
    assert len(session.ids) == length


def test_the_window_is_full_to_its_end_and_moves_seldom(session):
    for columns in (1, 3, 4, 8):
        starts = []
        for last in range(session.cache.length):
            first, values = session.window("K", 0, 0, last, columns)
            assert first + len(values) == last + 1
            assert 1 <= len(values) <= columns
            starts.append(first)
        assert all((after - before) % max(1, columns // 4) == 0 for before, after in pairwise(starts))


def cells(html):
    return re.findall(r"<path d='(M\d+ \d+)h\d+' opacity='([\d.e-]+)'>", html)


def test_cells_that_did_not_change_keep_their_colour(inspector):
    control(inspector, "Head").value = 1
    before, scale = cells(pictures(inspector)), inspector.session.scale("K", 0, 1)
    for action in ("Step", "Step", "Back", "Reset"):
        click(inspector, action)
        assert inspector.session.scale("K", 0, 1) == scale
        assert set(before) <= set(cells(pictures(inspector)))
    assert scale == pytest.approx(float(inspector.session.cache.keys(0)[1].abs().max()))


def test_layer_head_and_values(inspector):
    cache = inspector.session.cache
    for layer, head, kind, tensor in [(1, 0, "K", cache.keys(1)[0]), (1, 1, "V", cache.values(1)[1])]:
        control(inspector, "Layer").value = layer
        control(inspector, "Head").value = head
        control(inspector, "Values").value = kind
        html = pictures(inspector)
        assert f"{kind} of layer {layer}, head {head}, positions 0 to {cache.length - 1}" in html
        for value in tensor.flatten().tolist():
            assert f"<title>{value:.3g}</title>" in html


def test_step_back_and_reset(inspector):
    length = inspector.session.cache.length
    click(inspector, "Step")
    assert inspector.session.cache.length == length + 1
    assert "1 position added" in pictures(inspector)
    assert "unchanged ✓" in pictures(inspector)
    assert 's-answer"' in pictures(inspector), "a frame around what is new"
    click(inspector, "Back")
    assert inspector.session.cache.length == length
    assert "1 position dropped" in pictures(inspector)
    click(inspector, "Back")
    assert "only the prompt has been read" in announced(inspector)[0]
    click(inspector, "Step")
    click(inspector, "Reset")
    assert inspector.session.cache.length == length


def test_the_window_moves_and_a_step_brings_it_back(inspector):
    position = control(inspector, "Up to position (-1: newest)")
    position.value = "3"
    assert "positions 0 to 3 of" in pictures(inspector)
    for wrong in ("999", "-2", "1.5", ""):
        position.value = wrong
        assert "position" in problems(inspector)[0]
        assert position.value == wrong
        assert "positions 0 to 3 of" in pictures(inspector)
    click(inspector, "Step")
    assert position.value == "-1"
    assert problems(inspector) == []
    assert f"positions 0 to {inspector.session.cache.length - 1} of" in pictures(inspector)


def test_a_token_is_text_never_markup(tiny_engine):
    inspector = CacheInspector(tiny_engine, "<script>&\x1b", chat=False)
    _ = inspector.ui
    for html in (pictures(inspector), inspector.to_html()):
        assert "<script" not in html
        assert "\x1b" not in html
    inspector.close()


def test_without_a_kernel_and_nothing_left(tiny_engine, live_widgets):
    inspector = CacheInspector(tiny_engine, "a1", chat=False)
    bundle = inspector._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    assert "Bytes in the cache" in bundle["text/html"]
    inspector.close()
    assert live_widgets() == 0
