"""Writes and reads server-sent events, as far as a stream of completions needs them."""

from __future__ import annotations

import json
import re
from typing import Any

DONE = b"data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # asks nginx, and proxies that copy it, not to hold tokens back
}
LINE_END = re.compile(rb"\r\n|\n|\r(?=[^\n])")  # a CR at the very end may be half of a CR LF


def event(body: Any) -> bytes:
    """One event: one line of ASCII, so that no kind of line break in the text can split it."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


class EventReader:
    """Reads events from the bytes of a response, wherever these are cut. Comments and fields but `data` are left out.

    Not httpx's `iter_lines`: that ends a line at U+2028 too, which an answer may well contain.
    """

    def __init__(self) -> None:
        self._rest = b""  # the line that has not ended
        self._data: list[str] = []  # of the event that has not ended

    def feed(self, piece: bytes) -> list[str]:
        """The data of the events that end with this piece."""
        *lines, self._rest = LINE_END.split(self._rest + piece)
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
            elif not line and self._data:
                events.append("\n".join(self._data))
                self._data = []
        return events
