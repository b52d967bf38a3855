"""Text out of tokens that come one at a time, never half a character."""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterator

from llmlesson.engine.byte_level import spelled_bytes
from llmlesson.lessons.exercise import Case, Exercise, Mistake
from llmlesson.lessons.real import real_tokenizer

STUB = '''
def whole_characters(waiting, new):
    """What can be sent now that the bytes of one more token are there.

    waiting: bytes that were held back so far. new: the bytes of the next token.
    Returns (text, waiting): all characters that are complete, and the bytes that must still be held back.
    """
    return ...
'''

SOLUTION = """
def whole_characters(waiting, new):
    data = waiting + new
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        return data[: error.start].decode(), data[error.start :]
"""

BY_LENGTH = """
def whole_characters(waiting, new):
    data = waiting + new
    for held in range(4):
        end = len(data) - held
        try:
            return (data[:end].decode("utf-8"), data[end:])
        except UnicodeDecodeError:
            pass
"""

WITH_CODECS = """
import codecs

def whole_characters(waiting, new):
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = decoder.decode(waiting + new)
    return [text, decoder.getstate()[0]]
"""

OWN_BUFFER = """
buffer = b""

def whole_characters(waiting, new):
    global buffer
    buffer += new
    try:
        text, buffer = buffer.decode(), b""
    except UnicodeDecodeError as error:
        text, buffer = buffer[: error.start].decode(), buffer[error.start :]
    return text, buffer
"""

A_REAL_ONE = (
    "You took � for the sign of half a character. A text may hold a real �, which is a character like any other: ask "
    "the decoder where it failed, not the text how it looks."
)

MISTAKES = (
    Mistake(
        "def whole_characters(waiting, new):\n"
        "    data = waiting + new\n"
        "    text = data.decode(errors='replace').rstrip('\\ufffd')\n"
        "    return text, data[len(text.encode()) :]",
        A_REAL_ONE,
    ),
    Mistake(
        "def whole_characters(waiting, new):\n"
        "    data = waiting + new\n"
        "    text = data.decode(errors='replace').partition('\\ufffd')[0]\n"
        "    return text, data[len(text.encode()) :]",
        A_REAL_ONE,
    ),
    Mistake(
        SOLUTION.replace("data.decode()", 'data.decode("utf-8-sig")'),
        "utf-8-sig drops the mark U+FEFF at the beginning, as for files from Windows. Here it is part of the text.",
    ),
    Mistake(
        BY_LENGTH.replace("range(4)", "range(3)"),
        "Three bytes may have to wait: a character has up to four. Of an emoji, the first three can come alone.",
    ),
    Mistake(
        OWN_BUFFER,
        "You kept the bytes in a variable of your own. The function may be called for many streams at once: all it may "
        "use is what it is given.",
    ),
    Mistake(
        SOLUTION.replace("    try:", "    if len(data) < 4:\n        return '', data\n    try:"),
        "You waited until there were four bytes. What is complete can be sent at once, even a single byte.",
    ),
    Mistake(
        "def whole_characters(waiting, new):\n"
        "    data = waiting + new\n"
        "    for end in range(1, len(data) + 1):\n"
        "        try:\n            return data[:end].decode(), data[end:]\n"
        "        except UnicodeDecodeError:\n            pass\n"
        "    return '', data",
        "You sent the first character and held back the rest. All characters that are complete can be sent now.",
    ),
    Mistake(
        SOLUTION.replace("data[error.start :]", "new"),
        "The new bytes wait as a whole, though a part of them was sent: hold back data[error.start :] only.",
    ),
    Mistake(
        SOLUTION.replace("data.decode(), b", "''.join(sign for sign in data.decode() if sign.isprintable()), b"),
        "You left out what can't be printed. A line end is text, too, and so is the invisible sign that joins emoji.",
    ),
    Mistake(
        'def whole_characters(waiting, new):\n    return (waiting + new).decode(errors="replace"), b""',
        "Half a character went out as the replacement character �. What is sent can't be taken back: hold it back.",
    ),
    Mistake(
        'def whole_characters(waiting, new):\n    return (waiting + new).decode(errors="ignore"), b""',
        "The bytes of half a character are lost: when its other half comes, nothing is left to join it to.",
    ),
    Mistake(
        "def whole_characters(waiting, new):\n    return (waiting + new).decode(), b''",
        "bytes.decode() raises when a character is cut off. Catch that, and hold the cut-off bytes back.",
    ),
    Mistake(
        SOLUTION.replace("return data[: error.start].decode(), data[error.start :]", 'return "", data'),
        "You held everything back because its end is incomplete. The characters before that can be sent.",
    ),
    Mistake(
        SOLUTION.replace("waiting + new", "new"), "You decoded the new bytes alone. Those that wait come before them."
    ),
    Mistake(SOLUTION.replace("waiting + new", "new + waiting"), "The bytes that wait came first: waiting + new."),
    Mistake(
        SOLUTION.replace('return data.decode(), b""', "return data.decode(), data"),
        "What has been sent must not wait any longer, or it is sent again with the next token.",
    ),
    Mistake(
        BY_LENGTH.replace("range(4)", "range(2)"),
        "A character has up to four bytes, so up to three may have to wait.",
    ),
    Mistake(
        "def whole_characters(waiting, new):\n"
        "    data = waiting + new\n"
        "    end = len(data)\n"
        "    while end and data[end - 1] >= 0x80:\n"
        "        end -= 1\n"
        "    return data[:end].decode(), data[end:]",
        "You held back every character that is not ASCII, complete or not.",
    ),
    Mistake(SOLUTION.replace(', b""', ""), says="It is a str, where a tuple is expected"),
    Mistake(SOLUTION.replace('b""\n', '""\n'), says="It is a str, where a bytes is expected"),
    Mistake(
        SOLUTION.replace("data[: error.start].decode(), data", "data[: error.start], data"),
        says="It is a bytes, where a str is expected",
    ),
    Mistake(
        SOLUTION.replace(".decode()", '.decode("latin-1")'),
        "Latin-1 makes a character of every single byte. The bytes are UTF-8, in which one character may take four.",
    ),
    Mistake(SOLUTION.replace("UnicodeDecodeError as error", "UnicodeEncodeError as error"), says="UnicodeDecodeError"),
    Mistake(
        SOLUTION.replace("return data.decode(), b", "return data.decode().strip(), b"),
        "Spaces and line ends at the edges are gone. A token is often a space and a word, and both are text.",
    ),
    Mistake(
        "def whole_characters(waiting, new):\n"
        "    text = (waiting + new).decode(errors='ignore')\n"
        "    return text, (waiting + new)[len(text) :]",
        "You counted characters where bytes are needed: a character may be several bytes long.",
    ),
)


def cases(rng: random.Random) -> Iterator[Case]:
    yield Case((b"", b"Hi"), ("Hi", b""))
    yield Case((b"", "né".encode()), ("né", b""))
    yield Case((b"", b"\xe2\x82"), ("", b"\xe2\x82"))
    yield Case((b"\xe2\x82", b"\xac"), ("€", b""))
    yield Case((b"", b"5 \xe2"), ("5 ", b"\xe2"))
    yield Case((b"\xe2", b"\x82"), ("", b"\xe2\x82"))
    yield Case((b"\xf0\x9f", b"\x98"), ("", b"\xf0\x9f\x98"))
    yield Case((b"\xf0\x9f\x98", b"\x80!"), ("😀!", b""))
    yield Case((b"\xc3", b"\xa9\xe2\x82"), ("é", b"\xe2\x82"))
    yield Case((b"", b""), ("", b""))
    yield Case((b"", b" a\n"), (" a\n", b""))
    yield Case((b"", "�".encode()), ("�", b""))
    yield Case((b"", "\ufeffHi".encode()), ("\ufeffHi", b""))
    for _ in range(30):
        data = "".join(rng.choices("a é€日😀", k=6)).encode()
        first, second = sorted(rng.choices(range(len(data) + 1), k=2))
        yield from stream([data[:first], data[first:second], data[second:]], "random")
    tokenizer = real_tokenizer()
    for text in ("naïve 日本語!", "👩‍🚀 → 🚀"):
        yield from stream([spelled_bytes(tokenizer.token(i)) for i in tokenizer.encode(text)], "real model")


def stream(pieces: list[bytes], origin: str) -> Iterator[Case]:
    """A case for each piece; Python's own incremental decoder says what should come."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for piece in pieces:
        waiting = decoder.getstate()[0]
        yield Case((waiting, piece), (decoder.decode(piece), decoder.getstate()[0]), origin=origin)


EXERCISE = Exercise(
    lesson="01",
    stub=STUB,
    hints=(
        "Join what waits and what is new. If all of it is valid UTF-8, send it. If not, only its last character can "
        "be incomplete: where does that one begin?",
        "data.decode() raises UnicodeDecodeError where it meets the cut-off character. Catch it as error: error.start "
        "is the index at which that character begins.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(BY_LENGTH, WITH_CODECS),
)
