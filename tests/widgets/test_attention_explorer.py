"""AttentionExplorer on the real model: its numbers are those of the forward pass; without a browser."""

from __future__ import annotations

import pytest
import torch
from widgets.events import announced, click, control

from llmlesson.errors import LessonError
from llmlesson.views.attention import LAST
from llmlesson.widgets import AttentionExplorer
from llmlesson.widgets.attention_session import LIMIT, AttentionSession

PROMPT = "Explain quantum computing like I'm ten."


@pytest.fixture(scope="module")
def engine(real):
    return real


@pytest.fixture(scope="module")
def session(engine):
    return AttentionSession(engine, PROMPT)


@pytest.fixture
def explorer(engine):
    w = AttentionExplorer(engine, PROMPT, token=30, layer=15, head=2)
    yield w
    w.close()


@pytest.mark.parametrize(("token", "layer", "head"), [(30, 15, 2), (0, 0, 0), (37, 29, 8), (5, 7, 3)])
def test_shares_are_the_softmax_of_the_scores_and_the_engines_weights(engine, session, token, layer, head):
    look = session.look(token, layer, head)
    assert len(look.scores) == len(look.shares) == len(look.lengths) == token + 1
    torch.testing.assert_close(torch.tensor(look.scores).softmax(0), torch.tensor(look.shares), atol=1e-5, rtol=1e-4)
    with engine.record([layer]) as recording:
        engine.prefill(session.ids)
    torch.testing.assert_close(recording[layer].weights[head, token, : token + 1], torch.tensor(look.shares))
    assert look.kv_head == head // 3


def test_what_the_heads_and_the_mlp_add_makes_the_stream(engine, session):
    """Lengths and angles, against the layer written out: before + heads + MLP = after, as vectors."""
    model, layer, token = engine.model, 15, 30
    with engine.record([layer]) as recording:
        engine.prefill(session.ids)
    record, weights = recording[layer], model.layers[layer]
    values = record.v.repeat_interleave(3, dim=0)
    heads = (record.weights @ values).transpose(0, 1).flatten(1)[token] @ weights.out  # [H]
    before, after = record.before[token], record.after[token]
    stream = session.look(token, layer, 0).stream
    assert stream.came_in == pytest.approx(float(before.norm()), rel=1e-4)
    assert stream.heads_add == pytest.approx(float(heads.norm()), rel=1e-3)
    assert stream.mlp_adds == pytest.approx(float((after - before - heads).norm()), rel=1e-3)
    assert stream.goes_on == pytest.approx(float(after.norm()), rel=1e-4)
    cosine = float(heads @ before / heads.norm() / before.norm())
    assert torch.tensor(stream.heads_angle).deg2rad().cos() == pytest.approx(cosine, abs=1e-3)


def test_the_map_leaves_out_the_first_token_and_itself(session):
    others = session.others(30)
    assert (len(others), len(others[0])) == (30, 9)
    look = session.look(30, 15, 2)
    assert others[15][2] == pytest.approx(sum(look.shares[1:30]), abs=1e-5)
    assert session.others(0) == [[0.0] * 9] * 30


@pytest.mark.parametrize("place", [(38, 0, 0), (-1, 0, 0), (0, 30, 0), (0, 0, 9)])
def test_what_is_not_there_is_refused(session, place):
    with pytest.raises(LessonError, match="they run from 0 to"):
        session.look(*place)


def test_a_long_prompt_is_cut(engine):
    session = AttentionSession(engine, "word " * 100)
    assert len(session.ids) == LIMIT < session.total


def test_stepping_through(explorer):
    assert explorer.phase == LAST
    click(explorer, "Step through")
    assert explorer.phase == 1
    click(explorer, "Step through")
    click(explorer, "Back")
    assert explorer.phase == 1
    assert "1 of 6" in explorer._plain()
    click(explorer, "Show all")
    assert "In layer 15, head 2 of “·ten”" in explorer._plain()


def test_moving_stays_inside(explorer):
    for _ in range(10):
        click(explorer, "token ▶")
    assert explorer.token == 37
    control(explorer, "layer (0 to 29)").value = 0
    click(explorer, "◀ layer")
    assert explorer.layer == 0


def test_the_next_busy_head_looks_at_other_words(explorer):
    click(explorer, "Next busy head")
    assert explorer.session.others(30)[explorer.layer][explorer.head] >= 0.4
    assert (explorer.layer, explorer.head) != (15, 2)
    assert "to other words" in announced(explorer)[-1]


def test_another_prompt(explorer):
    control(explorer, "prompt").value = "Hi"
    assert explorer.session.text == "Hi"
    assert explorer.token <= len(explorer.session.ids) - 1
    assert "Hi" in explorer.to_html()
