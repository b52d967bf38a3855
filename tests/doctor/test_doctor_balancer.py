"""Whether lesson 07b has its load balancer; without one nothing is wrong."""

from __future__ import annotations

from llmlesson.doctor import balancer


def test_one_is_there(monkeypatch):
    monkeypatch.setattr(balancer, "find_balancer", lambda: "/somewhere/haproxy")
    assert (balancer.balancer().status, balancer.balancer().what) == ("ok", "haproxy, for lesson 07b")


def test_none_is_no_fault_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(balancer, "find_balancer", lambda: None)
    finding = balancer.balancer()
    assert finding.status == "ok"
    assert finding.what.endswith("pip install -r requirements-balancer.txt")
