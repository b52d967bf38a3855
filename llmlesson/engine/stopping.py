"""Stop strings: text that ends an answer, wherever token borders fall."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.errors import LessonError


class StopStrings:
    """Passes text on up to the first stop string, and never a part of one.

    The end of the text so far is held back for as long as it could be the beginning of a stop string.
    """

    def __init__(self, stop: str | Sequence[str] | None) -> None:
        self._stops = [stop] if isinstance(stop, str) else list(stop or ())
        if not all(isinstance(text, str) and text for text in self._stops):
            raise LessonError("A stop string must be a text of at least one character.")
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string was met: then nothing after it counts."""
        self._held += text
        found = [self._held.find(stop) for stop in self._stops if stop in self._held]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        split = len(self._held) - keep
        shown, self._held = self._held[:split], self._held[split:]
        return shown, False

    def flush(self) -> str:
        """What was held back, now that no more text comes."""
        shown, self._held = self._held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
