"""Stop strings: text that ends an answer, wherever it is split into tokens."""

from __future__ import annotations

from collections.abc import Sequence

from llmlesson.errors import LessonError


class StopStrings:
    """Passes text on up to the first stop string, and never any of the stop string itself.

    The end of the text so far is held back as long as it could be the beginning of a stop string. Hidden text, such as
    the name of a control token, is searched like any other, but never passed on.
    """

    def __init__(self, stop: str | Sequence[str] | None) -> None:
        try:
            self._stops = [stop] if isinstance(stop, str) else list(() if stop is None else stop)
        except TypeError:
            self._stops = [""]
        if not all(isinstance(text, str) and text for text in self._stops):
            raise LessonError("A stop string must be a text of at least one character.")
        self._held = ""
        self._hidden: list[bool] = []  # for each character held, whether it is never shown

    def push(self, text: str, hidden: bool = False) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string was found: then nothing after it counts."""
        self._held += text
        self._hidden += [hidden] * len(text)
        # The stop string that is complete first wins, as if the text came one character at a time.
        found = [
            (self._held.find(stop) + len(stop), self._held.find(stop)) for stop in self._stops if stop in self._held
        ]
        if found:
            shown = self._release(min(found)[1])
            self._release(len(self._held))
            return shown, True
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        return self._release(len(self._held) - keep), False

    def flush(self) -> str:
        """What was held back, once no more text can come."""
        return self._release(len(self._held))

    def copy(self) -> StopStrings:
        """An independent copy in the same state."""
        copy = StopStrings(self._stops)
        copy._held, copy._hidden = self._held, self._hidden.copy()
        return copy

    def _release(self, count: int) -> str:
        """Let go of the first characters held. Returns those of them that may be shown."""
        shown = "".join(char for char, hidden in zip(self._held[:count], self._hidden, strict=False) if not hidden)
        self._held, self._hidden = self._held[count:], self._hidden[count:]
        return shown

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins `stop`."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
