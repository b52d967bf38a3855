"""TokenizerExplorer by simulated events."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from widgets.events import VIEW, announced, click, control, pictures

from llmlesson.views.tokens import MOST_CHIPS
from llmlesson.widgets import TokenizerExplorer


@pytest.fixture
def explorer(real_tokenizer):
    made = TokenizerExplorer(SimpleNamespace(tokenizer=real_tokenizer), "hello the", "hell")
    assert made.ui is not None
    yield made
    made.close()


def counts(explorer):
    return [len(session.ids(explorer._within(session))) for session in explorer.sessions]


def test_merges_forwards_and_back(explorer):
    assert counts(explorer) == [2, 1], "all are done at first"
    click(explorer, "No merges")
    assert counts(explorer) == [9, 4]
    click(explorer, "Back one merge")
    assert counts(explorer) == [9, 4], "there is nothing before that"
    click(explorer, "Next merge")
    assert counts(explorer) == [8, 3]
    assert announced(explorer)[0].startswith("Text A. Merge 1 of 7: · + t → ·t, rank 0 in the merge table")
    assert "Text B. Merge 1 of 3: h + e → he" in announced(explorer)[0]
    click(explorer, "Next merge")
    click(explorer, "Back one merge")
    assert counts(explorer) == [8, 3]
    click(explorer, "All merges")
    assert counts(explorer) == [2, 1]
    click(explorer, "Next merge")
    assert counts(explorer) == [2, 1]


def test_typing_shows_the_new_tokens(explorer, real_tokenizer):
    click(explorer, "No merges")
    control(explorer, "Text A").value = "a 12 €"
    assert counts(explorer)[0] == len(real_tokenizer.encode("a 12 €"))
    html = explorer._count.value
    for number in ("6", "8", "4"):  # characters, bytes, tokens
        assert f"<bdi>{number}</bdi>" in html
    control(explorer, "Text A").value = ""
    assert "No tokens: the text is empty." in pictures(explorer)


def test_one_text_stands_alone_and_a_second_beside_it(real_tokenizer):
    explorer = TokenizerExplorer(SimpleNamespace(tokenizer=real_tokenizer), "hello")
    _ = explorer.ui
    assert "Tokens of Text B" not in pictures(explorer)
    assert "Text B" not in explorer.to_html()
    control(explorer, "Text B").value = "hello there"
    assert "Tokens of Text B" in pictures(explorer)
    assert [half.layout.display for half in explorer._halves] == [None, None]
    explorer.close()


def test_the_chat_template_marks_its_special_tokens(explorer):
    assert "◆" not in pictures(explorer)
    control(explorer, "in the chat template").value = True
    assert pictures(explorer).count("◆ special") == 2 * 5
    assert "of which 5 are special" in pictures(explorer)
    control(explorer, "in the chat template").value = False
    assert "◆" not in pictures(explorer)


def test_a_model_without_a_template_says_so(explorer, monkeypatch):
    monkeypatch.setattr(explorer._tokenizer, "_chat_template", None)
    control(explorer, "in the chat template").value = True
    assert "no chat template" in announced(explorer)[0]
    assert "◆" not in pictures(explorer)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script><img src=x>", "\u202eשלום", "\x1b[31m\x00", "x" * 5000, "ab " * 1700]
)
def test_any_text_is_shown_and_none_runs(explorer, text):
    control(explorer, "Text A").value = text
    html = pictures(explorer)
    assert not any(tag in html for tag in ("<script", "<img", "\x1b", "\x00"))
    assert html.count('role="listitem"') <= 2 * MOST_CHIPS
    assert len(html) < 250_000
    if counts(explorer)[0] > MOST_CHIPS:
        assert "counted but not drawn" in html


def test_without_a_kernel(explorer, live_widgets):
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    assert bundle["text/plain"].splitlines()[0] == "Text A: 9 characters, 2 tokens: hello ·the"
    assert "id 28120" in bundle["text/html"]
    explorer.close()
