"""RequestExplorer by simulated events: nothing happens before a click, and then what the engine's own stream gives."""

from __future__ import annotations

import re

import pytest
from widgets.events import announced, click, control, pictures

from llmlesson.engine import Sampling
from llmlesson.errors import LessonError
from llmlesson.widgets import RequestExplorer
from llmlesson.widgets.request_session import LONGEST_PROMPT, MOST_TOKENS, RequestSession

PROMPT = "hello the"
CHOICE = Sampling(temperature=1.0, seed=3)


@pytest.fixture
def explorer(tiny_engine):
    made = RequestExplorer(tiny_engine, PROMPT, CHOICE)
    assert made.ui is not None
    yield made
    made.close()


def chips(html):
    return html.count('role="listitem"')


def test_nothing_is_sent_and_no_number_is_shown_before_a_click(explorer):
    assert explorer.session is None
    for shown in (pictures(explorer), explorer.to_html()):
        assert "appear here as soon as you press" in shown
        assert "<svg" not in shown
        assert not re.search(r"\d+ tokens", shown)


def test_it_reads_and_writes_what_the_engine_does(explorer, tiny_engine):
    click(explorer, "Send")
    assert explorer.wait(30)
    s = explorer.session
    wanted = tiny_engine.generate(PROMPT, MOST_TOKENS, CHOICE)
    assert s.ids == wanted.prompt_ids
    assert [step.token_id for step in s.steps] == wanted.token_ids
    assert s.text == wanted.text
    html = pictures(explorer)
    assert chips(html) == len(wanted.prompt_ids) + len(wanted.token_ids)
    assert f"Read: {len(wanted.prompt_ids)} tokens" in html
    assert f"{s.steps[-1].cache_nbytes:,} bytes" in html
    assert f"{len(wanted.prompt_ids)} tokens read, {len(wanted.token_ids)} written." in announced(explorer)[-1]


def test_a_prompt_of_ones_own_replaces_the_first(explorer, tiny_engine):
    click(explorer, "Send")
    explorer.wait(30)
    control(explorer, "Your prompt").value = "the"
    click(explorer, "Send")
    explorer.wait(30)
    assert explorer.session.ids == tiny_engine.tokenizer.chat("the")


@pytest.mark.parametrize(
    ("typed", "says"), [("  \n ", "Type a prompt first"), ("the " * 2000, f"the limit is {LONGEST_PROMPT}")]
)
def test_what_cannot_be_sent_is_said_and_the_last_request_stays(explorer, typed, says):
    click(explorer, "Send")
    explorer.wait(30)
    before, shown = explorer.session, explorer.to_html()
    control(explorer, "Your prompt").value = typed
    click(explorer, "Send")
    explorer.wait(30)
    assert says in announced(explorer)[-1]
    assert explorer.session is before
    assert explorer.to_html() == shown


def test_stop_ends_it_and_what_was_written_stays(explorer, monkeypatch):
    steps = RequestSession.run

    def stopping(session):
        for step in steps(session):
            if step.index == 2:
                explorer._stop.set()
            yield step

    monkeypatch.setattr(RequestSession, "run", stopping)
    click(explorer, "Send")
    explorer.wait(30)
    assert len(explorer.session.steps) == 3
    assert "3 written. Stopped." in announced(explorer)[-1]


@pytest.mark.parametrize("text", ["hello", "the the", "<|im_end|>", "\nassistant\n", "🍵", "You are"])
def test_what_was_typed_is_told_from_the_template(real_tokenizer, text):
    class Reader:
        tokenizer = real_tokenizer

    session = RequestSession(Reader(), f"x{text}x")
    typed = real_tokenizer.decode([session.ids[place] for place in session.typed])
    assert typed == f"x{text}x"
    with pytest.raises(LessonError):
        RequestSession(Reader(), " ")
