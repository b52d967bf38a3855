"""A conversation for the chat template, in any form that a user may give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmlesson.errors import LessonError

Messages = Sequence[Mapping[str, str]]

GIVE = (
    "A prompt is a text, a list of messages such as [{'role': 'user', 'content': 'Hello'}], or a list of token ids, "
    "which engine.tokenizer.encode(text) makes."
)


def as_messages(prompt: Any) -> list[dict[str, str]]:
    """A conversation as a list of messages whose values are all text. A plain text becomes one user message.

    A message needs a role and content. Content in parts is joined if all parts are text. Raises LessonError for
    anything else.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, Mapping):
        prompt = [prompt]
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        hint = " Turn bytes into text with .decode()." if isinstance(prompt, (bytes, bytearray)) else ""
        raise LessonError(f"{_capital(_named(prompt))} is not a prompt.{hint} {GIVE}")
    if prompt and all(isinstance(item, str) for item in prompt):
        raise LessonError(f"This is a list of {len(prompt)} texts. Give one prompt at a time, or join them.")
    for item in prompt:
        if not isinstance(item, Mapping):
            raise LessonError(f"{_capital(_named(item))} in a list is neither a message nor a token id. {GIVE}")
    return [_message(item) for item in prompt]


def _message(message: Mapping[str, Any]) -> dict[str, str]:
    lacks = [key for key in ("role", "content") if message.get(key) is None]
    if lacks:
        raise LessonError(f"A message has no {lacks[0]}: give {{'role': 'user', 'content': 'Hello'}}.")
    return {str(key): _text_of(value, str(key)) for key, value in message.items() if value is not None}


def _text_of(value: object, key: str) -> str:
    if isinstance(value, str):
        return value
    if key == "content" and isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "".join(texts)
        raise LessonError("Part of a message's content is not text. This model reads text only.")
    raise LessonError(f"A message's {key} must be text, not {type(value).__name__}.")


def _named(value: object) -> str:
    return "nothing (None)" if value is None else f"something of type {type(value).__name__}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
