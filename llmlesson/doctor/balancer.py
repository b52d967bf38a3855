"""The load balancer of lesson 07b, which is no part of the course's packages."""

from __future__ import annotations

from pathlib import Path

from llmlesson.doctor.commands import pip_install
from llmlesson.doctor.finding import Finding, ok
from llmlesson.server.balancer import find_balancer


def balancer() -> Finding:
    """Always fine: without one, lesson 07b shows what was recorded elsewhere."""
    if found := find_balancer():
        return ok("balancer", f"{Path(found).stem}, for lesson 07b")
    get = pip_install("-r", "requirements-balancer.txt")
    return ok("balancer", f"none; lesson 07b shows recorded results without one. To get it: {get}")
