"""The wire format of OpenAI's chat completions and completions: bodies in, bodies and chunks out.

If the server can't do something, it refuses it and names the field; it never ignores it silently. Null means absent.
Fields that change nothing (`user`, `store`, …) and unknown fields are accepted, as OpenAI's server does.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHAT, TEXT = "chat.completion", "text_completion"
FINISH = {"eos": "stop", "stop": "stop", "length": "length", "cache_full": "length"}

# Fields that would change the answer, and the values with which they don't.
REFUSED: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": (),
    "web_search_options": (),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "min_tokens": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}


class ApiError(Exception):
    """A response with a status other than 200: `{"error": {"message", "type", "param", "code"}}`."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class Call:
    """What a client asks for, checked as far as possible without a tokenizer."""

    kind: str  # CHAT or TEXT
    prompts: Sequence[Any]  # each a text, a list of messages or a list of ids
    max_tokens: int | None  # None: as many as fit
    sampling: Mapping[str, Any]  # arguments of Sampling
    stop: Sequence[str]
    n: int
    stream: bool
    include_usage: bool
    ignore_eos: bool


def parse_body(raw: bytes) -> dict[str, Any]:
    """A request's body. Raises ApiError if it is not a JSON object."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise ApiError(400, f"The body must be a JSON object, not {type(body).__name__}.")
    return {name: value for name, value in body.items() if value is not None}


def parse_call(body: Mapping[str, Any], kind: str, model: str) -> Call:
    """A call of the chat or text endpoint. Raises ApiError, with the field's name, for anything unsupported."""
    _check_model(body, model)
    for name, harmless in REFUSED.items():
        if name in body and body[name] not in harmless:
            raise ApiError(400, f"This server does not support {name!r}.", param=name, code="unsupported_parameter")
    options = _get(body, "stream_options", dict, {})
    return Call(
        kind,
        [_get(body, "messages", list)] if kind == CHAT else _prompts(body),
        _max_tokens(body, kind),
        _sampling(body),
        _stop(body),
        _number(body, "n", 1, 128, 1, whole=True),
        _get(body, "stream", bool, False),
        _get(options, "include_usage", bool, False),
        _get(body, "ignore_eos", bool, False),
    )


def _check_model(body: Mapping[str, Any], model: str) -> None:
    asked = _get(body, "model", str, model)
    if asked != model:
        raise ApiError(
            404, f"There is no model {asked!r} here. This server has {model!r}.", param="model", code="model_not_found"
        )


def _prompts(body: Mapping[str, Any]) -> list[Any]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return prompt
        if all(isinstance(item, int) and not isinstance(item, bool) for item in prompt):
            return [prompt]
        if all(isinstance(item, list) and item for item in prompt):
            return prompt
    raise ApiError(400, "'prompt' must be a string, a list of strings, or one or several lists of ids.", param="prompt")


def _max_tokens(body: Mapping[str, Any], kind: str) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if name in body:
            return int(_number(body, name, 1, 2**31, whole=True))
    return None if kind == CHAT else 16


def _sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "temperature": _number(body, "temperature", 0, 2, 1.0),
        "top_p": _number(body, "top_p", 0, 1, 1.0),
        "repetition_penalty": _number(body, "repetition_penalty", 1e-3, 1e3, 1.0),
    }
    if "top_k" in body:  # vLLM's: -1 and 0 keep all tokens
        settings["top_k"] = max(0, _number(body, "top_k", -1, 2**31, whole=True))
    if "min_p" in body:
        settings["min_p"] = _number(body, "min_p", 0, 1)
    if "seed" in body:
        settings["seed"] = _number(body, "seed", -(2**63), 2**63 - 1, whole=True)
    return settings


def _stop(body: Mapping[str, Any]) -> list[str]:
    stop = body.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > 4 or not all(isinstance(text, str) and text for text in stops):
        raise ApiError(
            400, "'stop' must be a string, or a list of at most 4 strings. None of them may be empty.", param="stop"
        )
    return stops


def _get(body: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name, default)
    if value is None:
        raise ApiError(400, f"{name!r} is missing.", param=name)
    if not isinstance(value, kind):
        names = {dict: "an object", list: "a list", bool: "true or false", str: "a string"}
        raise ApiError(400, f"{name!r} must be {names[kind]}.", param=name)
    return value


def _number(
    body: Mapping[str, Any], name: str, least: float, most: float, default: float | None = None, whole: bool = False
) -> Any:
    value = body.get(name, default)
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "a whole number" if whole else "a number"
        raise ApiError(400, f"{name!r} must be {what} from {least:g} to {most:g}.", param=name)
    return value


@dataclass
class Reply:
    """The bodies of one response, which all have the same id, time and model."""

    call: Call
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    id: str = field(init=False)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self.call.kind == CHAT else 'cmpl'}-{uuid.uuid4().hex}"

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of the prompts, each counted once, and of all answers, including end-of-sequence tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }

    def whole(self, answers: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The body of a response that isn't streamed. answers: the text and finish reason of each choice."""
        choices = []
        for index, (text, reason) in enumerate(answers):
            content = {"message": {"role": "assistant", "content": text}} if self.call.kind == CHAT else {"text": text}
            choices.append({"index": index, **content, "logprobs": None, "finish_reason": FINISH[reason]})
        return {**self._head(self.call.kind), "choices": choices, "usage": self.usage}

    def chunk(self, index: int, text: str = "", first: bool = False, reason: str | None = None) -> dict[str, Any]:
        """One event of a stream. In a chat, the first event of each choice names the role."""
        if self.call.kind == CHAT:
            delta: dict[str, str] = {"role": "assistant"} if first else {}
            if text or first:
                delta["content"] = text
            content: dict[str, Any] = {"delta": delta}
        else:
            content = {"text": text}
        finish = FINISH[reason] if reason else None
        choice = {"index": index, **content, "logprobs": None, "finish_reason": finish}
        return self._chunk([choice], None)

    def usage_chunk(self) -> dict[str, Any]:
        """The last event before the end, if the client asked for it."""
        return self._chunk([], self.usage)

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, int] | None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.call.kind == CHAT else TEXT
        body = {**self._head(kind), "choices": choices}
        return {**body, "usage": usage} if self.call.include_usage else body

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
