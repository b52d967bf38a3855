"""Requests at set times: what each client saw, in the order of asking."""

from __future__ import annotations

import math

from llmlesson.server.play import Ask, play


def test_each_ask_has_its_exchange_in_order(paced):
    server = paced(0.01)
    seen = play(server.url, [Ask(0.1, tokens=3), Ask(0.0, tokens=5), Ask(tokens=1)])
    assert [(one.tokens, one.error, one.status) for one in seen] == [(3, "", 200), (5, "", 200), (1, "", 200)]
    assert seen[0].sent >= 0.1 > seen[1].sent
    assert all(one.arrivals[0] <= one.ended for one in seen)


def test_what_happens_meanwhile_is_seen(paced):
    server = paced(0.05)
    [one] = play(server.url, [Ask(tokens=1000)], [(0.2, server.stop)])
    assert (one.status, one.error) == (200, "The server is shutting down.")
    assert 0 < len(one.arrivals) < 1000


def test_nobody_there_is_an_error_of_the_request(paced):
    server = paced()
    server.stop()
    [one] = play(server.url, [Ask()])
    assert one.error.startswith("ConnectError")
    assert one.status == 0
    assert math.isnan(one.ttft)
