"""RequestMap and its picture: each moment is what the clients saw then, and the controls lead to it."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup
from widgets.events import click, control, pictures

from llmlesson.server.exchange import Exchange
from llmlesson.views.serving_map import moments, serving_map, state_at
from llmlesson.widgets import RequestMap

WHOLE = Exchange(sent=0.0, arrivals=[0.1, 0.2, 0.3], ended=0.31, tokens=3, replica="A", status=200)
CUT = Exchange(sent=0.05, arrivals=[0.15], ended=0.25, error="cut", replica="B", status=200)
LATER = Exchange(sent=0.2, arrivals=[0.3], ended=0.35, tokens=1, replica="A", status=200)
REFUSED = Exchange(sent=0.3, ended=0.32, error="status 503: drains", replica="none", status=503)
ALL = [WHOLE, CUT, LATER, REFUSED]


@pytest.mark.parametrize(
    ("at", "states"),
    [
        (0.0, ["waiting", "later", "later", "later"]),
        (0.12, ["writing", "waiting", "later", "later"]),
        (0.22, ["writing", "writing", "waiting", "later"]),
        (0.26, ["writing", "broken", "waiting", "later"]),
        (0.4, ["done", "broken", "done", "refused"]),
    ],
)
def test_the_state_of_each_request(at, states):
    assert [state_at(one, at) for one in ALL] == states


def test_the_picture_says_what_it_shows():
    html = serving_map(ALL, 0.26, ["ann", "bob", "cem", "dan"])
    says = (
        "After 260 ms: 1 × not sent yet, 1 × waits for its first word, 1 × its answer comes, 1 × its answer broke off."
    )
    assert html.count(says) >= 2  # to be seen, and to be read out
    rows = BeautifulSoup(html, "html.parser").find_all("tr")
    cells = [[cell.get_text(strip=True) for cell in row.find_all(["th", "td"])] for row in rows]
    assert ["bob", "its answer broke off", "B", "1"] in cells
    assert ["dan", "not sent yet", "–", "0"] in cells  # where it will go isn't known yet
    assert html.count("✗") >= 2  # at the client, and at the replica: never by colour alone


def test_what_cannot_be_drawn_is_refused():
    for exchanges, names in (([], []), (ALL, ["ann"])):
        with pytest.raises(ValueError, match="requests"):
            RequestMap(exchanges, names)


def test_names_are_text_and_nothing_else():
    assert "<img" not in serving_map([WHOLE], 0.1, ["<img src=x>"])


@pytest.fixture
def widget():
    widget = RequestMap(ALL, ["ann", "bob", "cem", "dan"])
    yield widget
    widget.close()


def test_it_begins_where_most_is_going_on(widget):
    assert sum(state_at(one, widget.at) in ("waiting", "writing") for one in ALL) == 3
    assert widget.to_html() in pictures(widget)


def test_step_and_back_move_by_one_moment(widget):
    times = moments(ALL)
    place = times.index(widget.at)
    click(widget, "Step")
    assert widget.at == times[place + 1]
    click(widget, "Back")
    click(widget, "Back")
    assert widget.at == times[place - 1]
    for _ in times:
        click(widget, "Back")
    assert widget.at == times[0]
    assert control(widget, "moment").value == 0


def test_the_slider_leads_anywhere(widget):
    control(widget, "moment").value = len(moments(ALL)) - 1
    assert widget.at == 0.35
    assert "has its answer" in pictures(widget)


def test_run_comes_to_the_end_and_starts_over(widget):
    click(widget, "Run")
    assert widget.at == 0.35
    assert "All answers have ended." in pictures(widget)
    click(widget, "Run")
    assert widget.at == 0.35


def test_closed_it_is_gone(live_widgets):
    widget = RequestMap(ALL)
    assert widget.ui is not None
    widget.close()
    assert live_widgets() == 0
