"""Server-sent events, as far as a stream of completions needs them."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # asks nginx, and what copies it, not to hold tokens back
}


def event(body: Any) -> bytes:
    """One event: one line of ASCII, so that no line end of any kind in a text can break it."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
