"""The loop of lesson 03, with each token's text on its way before the next token is computed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from llmlesson.lessons.exercise import Case, Exercise, Function, Mistake, NotAsAsked
from llmlesson.lessons.scripted import ENDS, Piece, ScriptedEngine
from llmlesson.server.sse import EventReader

STUB = '''
def stream_answer(engine, ids, max_new_tokens, write):
    """Answer a prompt (greedy), and write each token's text before the next token is computed.

    write(bytes) sends them to the client. Write one event for each piece of new text, `data: ` + JSON + two line ends:
        {"choices": [{"index": 0, "delta": {"content": " Paris"}, "finish_reason": None}]}
    then one with the delta {} and the finish_reason "stop" (an end-of-sequence token came) or "length", and at last
    b"data: [DONE]\\\\n\\\\n". A token may hold half a character: its text waits for the other half.
    If the client has left, write raises BrokenPipeError. Then compute nothing more.
    You have engine.prefill(ids), engine.decode(cache, token), engine.eos_token_ids, engine.tokenizer.decode(tokens).
    """
    return ...
'''

SOLUTION = r"""
import json

def stream_answer(engine, ids, max_new_tokens, write):
    def send(delta, reason=None):
        body = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        write(b"data: " + json.dumps(body).encode() + b"\n\n")

    cache, token = engine.prefill(ids)
    tokens, sent, reason = [], "", "stop"
    while token not in engine.eos_token_ids:
        tokens.append(token)
        text = engine.tokenizer.decode(tokens)
        if not text.endswith("\ufffd"):
            send({"content": text[len(sent) :]})
            sent = text
        if len(tokens) == max_new_tokens:
            reason = "length"
            break
        cache, token = engine.decode(cache, token)
    send({}, reason)
    write(b"data: [DONE]\n\n")
"""

GIVES_UP = r"""
import json

def stream_answer(engine, ids, max_new_tokens, write):
    made, old = [], ""
    try:
        cache, token = engine.prefill(ids)
        while True:
            reason = "stop" if token in engine.eos_token_ids else None
            if reason is None:
                made.append(token)
                if len(made) >= max_new_tokens:
                    reason = "length"
            text = engine.tokenizer.decode(made)
            new = text[len(old):] if "\ufffd" not in text[len(old):] else ""
            old += new
            delta = {"content": new} if new else {}
            if delta or reason:
                chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
                write(f"data: {json.dumps(chunk)}\n\n".encode())
            if reason:
                break
            cache, token = engine.decode(cache, token)
        write(b"data: [DONE]\n\n")
    except BrokenPipeError:
        return
"""

AT_THE_END = r"""
import json

def stream_answer(engine, ids, max_new_tokens, write):
    cache, token = engine.prefill(ids)
    tokens = []
    while token not in engine.eos_token_ids and len(tokens) < max_new_tokens:
        tokens.append(token)
        if len(tokens) < max_new_tokens:
            cache, token = engine.decode(cache, token)
    reason = "stop" if token in engine.eos_token_ids else "length"
    for delta, ends in (({"content": engine.tokenizer.decode(tokens)}, None), ({}, reason)):
        body = {"choices": [{"index": 0, "delta": delta, "finish_reason": ends}]}
        write(b"data: " + json.dumps(body).encode() + b"\n\n")
    write(b"data: [DONE]\n\n")
"""

ONE_LATE = r"""
import json

def stream_answer(engine, ids, max_new_tokens, write):
    def send(delta, reason=None):
        body = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        write(b"data: " + json.dumps(body).encode() + b"\n\n")

    cache, token = engine.prefill(ids)
    tokens, sent = [], ""
    while token not in engine.eos_token_ids and len(tokens) < max_new_tokens:
        tokens.append(token)
        if len(tokens) < max_new_tokens:
            cache, token = engine.decode(cache, token)
        text = engine.tokenizer.decode(tokens)
        if not text.endswith("\ufffd"):
            send({"content": text[len(sent) :]})
            sent = text
    send({}, "stop" if token in engine.eos_token_ids else "length")
    write(b"data: [DONE]\n\n")
"""

MISTAKES = (
    Mistake(
        AT_THE_END,
        "The text came when everything was computed: nobody sees a word until then. Write each piece before the next "
        "call of engine.decode.",
    ),
    Mistake(
        ONE_LATE,
        "Each piece came one step late: the next token was computed before the last one was written.",
    ),
    Mistake(
        SOLUTION.replace("text[len(sent) :]", "text"),
        "You sent the whole text so far each time. The client puts the pieces together: send what is new.",
    ),
    Mistake(
        SOLUTION.replace(
            '        if not text.endswith("\\ufffd"):\n            send', "        if True:\n            send"
        ),
        "Half a character went out as �, and what is sent can't be taken back. Hold it until the other half is there.",
    ),
    Mistake(
        SOLUTION.replace("text[len(sent) :]", "engine.tokenizer.decode([token])").replace(
            'if not text.endswith("\\ufffd")', 'if "\\ufffd" not in engine.tokenizer.decode([token])'
        ),
        "Characters that two tokens share are lost. Decode all tokens together, and send what is new.",
    ),
    Mistake(
        SOLUTION.replace('    write(b"data: [DONE]\\n\\n")\n', ""),
        "`data: [DONE]` is missing. By it a client tells a whole answer from one that was cut off.",
    ),
    Mistake(
        SOLUTION.replace("    send({}, reason)\n", ""),
        "No event had a finish_reason. A client can't tell a complete answer from one that max_new_tokens cut off.",
    ),
    Mistake(
        SOLUTION.replace('            reason = "length"\n', ""),
        'Where max_new_tokens ended the answer, the finish_reason is "length".',
    ),
    Mistake(
        SOLUTION.replace('+ b"\\n\\n")\n\n    cache', '+ b"\\n")\n\n    cache'),
        "An event ends with an empty line, so with two line ends. With one, clients wait for the rest of it.",
    ),
    Mistake(
        SOLUTION.replace('write(b"data: " + json', "write(json").replace(
            '.encode() + b"\\n\\n")\n\n    cache', '.encode() + b"\\n\\n")\n\n    cache'
        ),
        "Each event begins with `data: `. Lines that don't are skipped by clients.",
    ),
    Mistake(
        SOLUTION.replace("            send({", "            quietly({").replace(
            "    cache, token = engine.prefill",
            "    def quietly(delta):\n        try:\n            send(delta)\n        except BrokenPipeError:\n"
            "            pass\n\n    cache, token = engine.prefill",
            1,
        ),
        "The client had left, and you went on computing for nobody. Let the error end the function.",
    ),
    Mistake(
        SOLUTION.replace(
            "        if len(tokens) == max_new_tokens:\n",
            "        before = len(tokens)\n        if before > max_new_tokens - 1 and engine.decode(cache, token):\n",
        ),
        "One token more was computed than the client gets: the last one isn't read by anyone.",
    ),
    Mistake(
        SOLUTION.replace('b"data: " + json.dumps(body).encode() + b"\\n\\n"', 'f"data: {json.dumps(body)}\\n\\n"'),
        says="bytes",
    ),
    Mistake(SOLUTION.replace("json.dumps(body)", "str(body)"), says="no JSON"),
    Mistake(
        SOLUTION.replace('{"index": 0, "delta": delta, "finish_reason": reason}', '{"text": delta}'),
        says="has no delta",
    ),
)


def run(
    function: Function, engine: ScriptedEngine, ids: list[int], max_new_tokens: int, leaves_after: int | None
) -> Any:
    """Each text that the client got, with how many tokens had been read by then; how it ended; how many were read."""
    reader = EventReader()
    texts: list[list[Any]] = []
    ends: list[str] = []
    left = False

    def write(data: bytes) -> None:
        nonlocal left
        if not isinstance(data, bytes):
            raise TypeError(f"write sends bytes, and was given {type(data).__name__}: .encode() makes bytes of a text")
        if leaves_after is not None and len(texts) >= leaves_after:
            left = True
            raise BrokenPipeError("the client has left")
        for text in reader.feed(data):
            if text == "[DONE]":
                ends.append(text)
                continue
            delta, reason = _choice(text)
            if delta.get("content"):
                texts.append([engine.read, delta["content"]])
            if reason:
                ends.append(reason)

    try:
        function(engine, ids, max_new_tokens, write)
    except BrokenPipeError:
        if not left:
            raise
    return {"read, text": texts, "ends": ends, "read in all": engine.read}


def _choice(text: str) -> tuple[dict[str, Any], str | None]:
    try:
        body = json.loads(text)
    except ValueError:
        raise NotAsAsked(f"This is no JSON: {text[:80]}. json.dumps makes it of a dict.") from None
    try:
        choice = body["choices"][0]
        return choice["delta"], choice["finish_reason"]
    except (KeyError, IndexError, TypeError):
        raise NotAsAsked(f"This event has no delta or no finish_reason: {text[:80]}") from None


def cases(rng: random.Random) -> Iterator[Case]:
    end = ENDS[0]
    yield _case(["Par", "is", end], 8)
    yield _case(["The", " capital", " is", " Paris", end], 8)
    yield _case(["The", " capital", " is", " Paris", end], 2)
    tea = "🍵".encode()
    yield _case(["a", tea[:2], tea[2:], "b", end], 8)
    yield _case(["a", tea[:1], tea[1:3], tea[3:], end], 8)
    yield _case(["one", " two", " three", " four", end], 8, leaves_after=2)
    yield _case(["one", " two", " three", end], 8, leaves_after=0)
    for _ in range(12):
        words: list[Piece] = [f" {number}{rng.choice('abcé')}" for number in range(rng.randrange(1, 7))]
        if rng.random() < 0.5:
            cut, place = rng.randrange(1, 4), rng.randrange(len(words) + 1)
            words[place:place] = [tea[:cut], tea[cut:]]
        most, leaves = rng.choice([3, 20]), rng.choice([None, None, 1])
        if most == 3 and any(isinstance(word, bytes) for word in words):
            most = 20  # an answer that ends in half a character is another question
        yield _case([*words, end], most, leaves, "random")


def _case(script: list[Piece], most: int, leaves_after: int | None = None, origin: str = "fixed") -> Case:
    """What has to come is read off the script, character by character, without any decoder's help."""
    prompt = [900]
    texts: list[list[Any]] = []
    half, read = b"", len(prompt)
    ended = "stop"
    for made, piece in enumerate(script, start=1):
        if piece in ENDS:
            break
        data = half + (piece.encode() if isinstance(piece, str) else piece)
        whole = isinstance(piece, str) or len(data) == 4
        half = b"" if whole else data
        if whole:
            if leaves_after is not None and len(texts) == leaves_after:
                return Case(
                    (ScriptedEngine(script), prompt, most, leaves_after),
                    {"read, text": texts, "ends": [], "read in all": read},
                    origin=origin,
                )
            texts.append([read, data.decode()])
        if made == most:
            ended = "length"
            break
        read += 1
    if leaves_after is not None and len(texts) == leaves_after:
        ends = []
    else:
        ends = [ended, "[DONE]"]
    return Case(
        (ScriptedEngine(script), prompt, most, leaves_after),
        {"read, text": texts, "ends": ends, "read in all": read},
        origin=origin,
    )


EXERCISE = Exercise(
    lesson="07",
    stub=STUB,
    hints=(
        "Begin with the loop of lesson 03. What is new: write between two steps and not at the end; send only what the "
        "client doesn't have yet; and half a character has to wait.",
        "Keep the tokens and the text that is sent. After each token, text = engine.tokenizer.decode(tokens); if it "
        "doesn't end in \"\\ufffd\", write text[len(sent):]. BrokenPipeError needs no line at all: don't catch it.",
    ),
    solution=SOLUTION,
    cases=cases,
    mistakes=MISTAKES,
    others=(GIVES_UP,),
    run=run,
)
