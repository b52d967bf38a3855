"""Server-sent events out of the bytes of a response, wherever the network has cut them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake

STUB = '''
def read_events(kept, piece):
    """What the next piece of a response completes: (texts, kept).

    kept: the bytes before it that made no whole event yet, b"" at first. piece: the bytes that have just arrived.
    texts: for each event that is whole now, what is behind its `data:`. kept: the bytes of the one that isn't whole.
    An event ends with an empty line. Lines end with LF or CR LF (in Python: \\n or \\r\\n). A line that begins with
    `data:` carries text, behind one space that may be missing. If an event has several, LF joins them. Other lines,
    such as ": ping", carry nothing.
    """
    return ...
'''

SOLUTION = r"""
def read_events(kept, piece):
    *events, kept = (kept + piece).replace(b"\r\n", b"\n").split(b"\n\n")
    texts = []
    for event in events:
        lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
        if lines:
            texts.append(b"\n".join(lines).decode())
    return texts, kept
"""

LINE_BY_LINE = r"""
def read_events(kept, piece):
    texts, data, whole = [], [], 0
    buffer = kept + piece
    position = 0
    while (end := buffer.find(b"\n", position)) >= 0:
        line = buffer[position:end].rstrip(b"\r")
        position = end + 1
        if line[:6] == b"data: ":
            data.append(line[6:].decode("utf-8"))
        elif line[:5] == b"data:":
            data.append(line[5:].decode("utf-8"))
        elif line == b"":
            if data:
                texts.append("\n".join(data))
            data, whole = [], position
    return [texts, buffer[whole:]]
"""

AS_TEXT = r"""
def read_events(kept, piece):
    buffer = kept + piece
    end = max(buffer.rfind(b"\n\n") + 2, buffer.rfind(b"\r\n\r\n") + 4)
    if end < 2 or end == 3 and not buffer.startswith(b"\r\n\r\n"):
        return [], buffer
    if buffer.rfind(b"\n\n") < 0 and buffer.rfind(b"\r\n\r\n") < 0:
        return [], buffer
    whole = buffer[:end].decode().replace("\r\n", "\n")
    texts = []
    for event in whole.split("\n\n"):
        data = [line.partition(":")[2] for line in event.split("\n") if line.startswith("data:")]
        if data:
            texts.append("\n".join(text[1:] if text.startswith(" ") else text for text in data))
    return texts, buffer[end:]
"""

DECODED = r"""
def read_events(kept, piece):
    *events, kept = (kept + piece).decode(errors="ignore").replace("\r\n", "\n").split("\n\n")
    lines = [[line[5:].removeprefix(" ") for line in e.split("\n") if line.startswith("data:")] for e in events]
    return ["\n".join(line) for line in lines if line], kept.encode()
"""

MISTAKES = (
    Mistake(
        SOLUTION.replace("*events, kept = (kept + piece)", "events, kept = piece").replace(
            '.split(b"\\n\\n")', '.split(b"\\n\\n"), b""'
        ),
        "You took each piece for whole events. The network cuts where it likes: join the piece to what was kept, and "
        "keep what comes behind the last empty line.",
    ),
    Mistake(
        SOLUTION.replace("*events, kept = (kept + piece)", "*events, _ = (kept + piece)").replace(
            "return texts, kept", 'return texts, b""'
        ),
        "The beginning of an event that isn't whole yet is lost: return it, and you get it back with the next piece.",
    ),
    Mistake(
        SOLUTION.replace("*events, kept =", "events =").replace("return texts, kept", "return texts, events[-1]"),
        "You gave out an event that hasn't ended. Only an empty line says that it is whole.",
    ),
    Mistake(
        SOLUTION.replace("return texts, kept", "return texts, kept + piece"),
        "What you keep holds bytes of events that you have given out. They would come again with the next piece.",
    ),
    Mistake(
        SOLUTION.replace('.replace(b"\\r\\n", b"\\n")', ""),
        "Some servers end lines with \\r\\n, and then an empty line is \\r\\n\\r\\n.",
    ),
    Mistake(
        SOLUTION.replace('(kept + piece).replace(b"\\r\\n", b"\\n")', '(kept + piece.replace(b"\\r\\n", b"\\n"))'),
        "A cut can fall between \\r and \\n. Replace line ends after the piece is joined to what was kept.",
    ),
    Mistake(
        SOLUTION.replace('line[5:].removeprefix(b" ")', "line[6:]").replace('b"data:")', 'b"data: ")'),
        "The space behind `data:` may be missing.",
    ),
    Mistake(
        SOLUTION.replace('.removeprefix(b" ")', ".strip()"),
        "You took away spaces that belong to the text. One space behind `data:` goes, and nothing else.",
    ),
    Mistake(
        SOLUTION.replace('.removeprefix(b" ")', ""),
        "The one space behind `data:` is no part of the text.",
    ),
    Mistake(
        SOLUTION.replace('texts.append(b"\\n".join(lines).decode())', "texts += [line.decode() for line in lines]"),
        "An event with several `data:` lines is one text, joined by \\n. You gave a text for each line.",
    ),
    Mistake(
        SOLUTION.replace(' if line.startswith(b"data:")', ""),
        "Lines that don't begin with `data:` carry nothing: a comment such as `: ping` keeps the connection open.",
    ),
    Mistake(
        SOLUTION.replace("        if lines:\n            texts", "        texts"),
        "An event without a `data:` line, such as a lone comment, is no text, not an empty one.",
    ),
    Mistake(
        SOLUTION.replace('event.split(b"\\n") if line', "event.decode().splitlines() if line")
        .replace('b"data:"', '"data:"')
        .replace('b" "', '" "')
        .replace('b"\\n".join(lines).decode()', '"\\n".join(lines)'),
        "str.splitlines also splits at characters such as U+2028, which a text may hold. Split at \\n alone.",
    ),
    Mistake(
        DECODED,
        "A piece can end in the middle of a character. Keep bytes, and decode an event once it is whole.",
    ),
    Mistake(
        SOLUTION.replace("(kept + piece)", "(kept.decode() + piece.decode()).encode()"),
        says="UnicodeDecodeError",
    ),
    Mistake(SOLUTION.replace(".decode())", ")"), says="It is a bytes, where a str is expected"),
    Mistake(SOLUTION.replace("return texts, kept", "return texts"), says="not enough values to unpack"),
)


def run(function: Function, pieces: Sequence[bytes]) -> list[Any]:
    """For each piece the texts that it completes; at the end, what is kept."""
    kept: Any = b""
    seen = []
    for piece in pieces:
        texts, kept = function(kept, piece)
        seen.append(texts)
    return [*seen, kept]


def cases(rng: random.Random) -> Iterator[Case]:
    yield Case(([b"data: Paris\n\n"],), [["Paris"], b""])
    yield Case(([b"data: a\n\ndata: b\n\n"],), [["a", "b"], b""], "Two events can come in one piece.")
    yield Case(([b"data: Par", b"is\n\n"],), [[], ["Paris"], b""])
    yield Case(([b"data: a\n\nda", b"ta: b\n", b"\n"],), [["a"], [], ["b"], b""])
    yield Case(([b"data: a\n\n", b"data: b"],), [["a"], [], b"data: b"])
    yield Case(([b"data: a\r\n\r\ndata: b\r\n\r\n"],), [["a", "b"], b""])
    yield Case(([b"data: a\r\n\r", b"\ndata: b\r", b"\n\r\n"],), [[], ["a"], ["b"], b""])
    yield Case(([b"data:a\n\n"],), [["a"], b""])
    yield Case(([b"data:  two spaces \n\n"],), [[" two spaces "], b""])
    yield Case(([b": ping\n\n: ping\ndata: a\n\n"],), [["a"], b""])
    yield Case(([b"data: a\ndata: b\n\n"],), [["a\nb"], b""])
    yield Case((["data: a\u2028b\n\n".encode()],), [["a\u2028b"], b""])
    tea = "data: 🍵\n\n".encode()
    yield Case(([tea[:8], tea[8:]],), [[], ["🍵"], b""])
    for _ in range(20):
        yield _random(rng)


def _random(rng: random.Random) -> Case:
    """Events that are put together from texts, so that the texts are known."""
    stream, ends = b"", []  # ends: where each event ends, and its text
    for _ in range(rng.randrange(1, 6)):
        new_line = rng.choice(["\n", "\r\n"])
        texts = ["".join(rng.choices("ab :é🍵\u2028", k=rng.randrange(8))) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        lines = [f"data:{' ' if text.startswith(' ') else rng.choice(['', ' '])}{text}" for text in texts]
        lines = lines + [": ping"] * (not lines or rng.random() < 0.2)
        stream += new_line.join([*lines, "", ""]).encode()
        ends.append((len(stream), "\n".join(texts) if texts else None))
    rest = rng.choice([b"", b"data: more"])
    stream += rest
    cuts = sorted(rng.sample(range(1, len(stream)), min(len(stream) - 1, rng.randrange(6))))
    places = list(pairwise([0, *cuts, len(stream)]))
    pieces = [stream[a:b] for a, b in places]
    complete = [[text for end, text in ends if a < end <= b and text is not None] for a, b in places]
    return Case((pieces,), [*complete, rest], origin="random")


EXERCISE = Exercise(
    lesson="07",
    stub=STUB,
    hints=(
        "Join the piece to what was kept, and look for empty lines. What comes before the last of them is whole, and "
        "what comes behind it is to be kept. When is it safe to turn bytes into text?",
        r'`*events, kept = (kept + piece).replace(b"\r\n", b"\n").split(b"\n\n")` gives both. Of each event take the '
        'lines that begin with b"data:", without these five bytes and without one space.',
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(LINE_BY_LINE, AS_TEXT),
    run=run,
)
