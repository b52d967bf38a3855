"""The wire format of OpenAI's chat completions and completions: what a client may ask for. `reply` has the answers.

If the server can't do something, it refuses it and names the field; it never ignores it silently. Null means absent.
Fields that change nothing (`user`, `store`, …) and unknown fields are accepted, as OpenAI's server does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHAT, TEXT = "chat.completion", "text_completion"

# Fields that would change the answer, and the values with which they don't.
REFUSED: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "reasoning_effort": (),
    "web_search_options": (),
    "suffix": ("",),
    "best_of": (1,),
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
    min_tokens: int
    logprobs: int | None  # None: none; otherwise those of the chosen token and of so many best
    echo: bool  # the prompt's text in front of the answer's


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
    stop, logprobs = _stop(body), _logprobs(body, kind)
    max_tokens = _max_tokens(body, kind)
    min_tokens = _number(body, "min_tokens", 0, max_tokens or 2**31, 0, whole=True)
    if min_tokens and stop:
        raise ApiError(400, "'min_tokens' can't be combined with 'stop' here.", param="min_tokens")
    echo = _get(body, "echo", bool, False)
    if echo and (kind == CHAT or logprobs is not None):
        what = "'logprobs'" if kind != CHAT else "a chat"
        raise ApiError(400, f"'echo' can't be combined with {what} here.", param="echo")
    return Call(
        kind,
        [_messages(body)] if kind == CHAT else _prompts(body),
        max_tokens,
        _sampling(body),
        stop,
        _number(body, "n", 1, 128, 1, whole=True),
        _get(body, "stream", bool, False),
        _get(options, "include_usage", bool, False),
        _get(body, "ignore_eos", bool, False),
        min_tokens,
        logprobs,
        echo,
    )


def parse_tokenize(body: Mapping[str, Any], model: str) -> tuple[Any, bool, bool, bool]:
    """A call of vLLM's /tokenize: (a text or messages, whether it is a chat, with special tokens, with their names)."""
    _check_model(body, model)
    if _get(body, "add_generation_prompt", bool, True) is False:
        raise ApiError(400, "A chat is always followed by the answer's beginning here.", param="add_generation_prompt")
    chat = "messages" in body
    prompt = _messages(body) if chat else _get(body, "prompt", str)
    special, names = _get(body, "add_special_tokens", bool, True), _get(body, "return_token_strs", bool, False)
    return prompt, chat, special, names


def parse_detokenize(body: Mapping[str, Any], model: str) -> list[int]:
    """A call of vLLM's /detokenize: the ids."""
    _check_model(body, model)
    ids = _get(body, "tokens", list)
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ApiError(400, "'tokens' must be a list of token ids.", param="tokens")
    return ids


def _check_model(body: Mapping[str, Any], model: str) -> None:
    asked = _get(body, "model", str, model)
    if asked != model:
        raise ApiError(
            404, f"There is no model {asked!r} here. This server has {model!r}.", param="model", code="model_not_found"
        )


def _messages(body: Mapping[str, Any]) -> list[Any]:
    messages = _get(body, "messages", list)
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(part, dict) or part.get("type", "text") != "text":
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                where = f"messages[{index}].content[{place}]"
                raise ApiError(400, f"This server reads text only, and {where} is of type {kind!r}.", param=where)
    return messages


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
        "presence_penalty": _number(body, "presence_penalty", -2, 2, 0.0),
        "frequency_penalty": _number(body, "frequency_penalty", -2, 2, 0.0),
    }
    if "top_k" in body:  # vLLM's: -1 and 0 keep all tokens
        settings["top_k"] = max(0, _number(body, "top_k", -1, 2**31, whole=True))
    if "min_p" in body:
        settings["min_p"] = _number(body, "min_p", 0, 1)
    if "seed" in body:
        settings["seed"] = _number(body, "seed", -(2**63), 2**63 - 1, whole=True)
    return settings


def _logprobs(body: Mapping[str, Any], kind: str) -> int | None:
    if kind != CHAT:
        return int(_number(body, "logprobs", 0, 5, whole=True)) if "logprobs" in body else None
    top = int(_number(body, "top_logprobs", 0, 20, 0, whole=True))
    if _get(body, "logprobs", bool, False):
        return top
    if top:
        raise ApiError(400, "'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    return None


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
