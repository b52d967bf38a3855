"""Which tokens a tokenizer's files name as special: the same files, with the same precedence, as in transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from llmlesson.errors import LessonError
from llmlesson.files.model_files import read_json

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def special_tokens(
    folder: Path, settings: Mapping[str, Any], stored: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, str], list[tokenizers.AddedToken]]:
    """({"bos_token": its text, …}, tokens to add to those of `tokenizer.json`, in order).

    settings: the content of tokenizer_config.json; stored: the added tokens of tokenizer.json. Where the settings have
    an `added_tokens_decoder`, transformers (5.24, `PreTrainedTokenizerBase._from_pretrained`) ignores
    special_tokens_map.json and added_tokens.json; otherwise these two override the settings. Raises LessonError if a
    file's content is malformed.
    """
    where = folder / "tokenizer_config.json"
    named = {**settings}
    extra = _extra(settings, where)
    by_id: dict[int, tokenizers.AddedToken] = {}
    if "added_tokens_decoder" in settings:
        table = settings["added_tokens_decoder"]
        if not isinstance(table, Mapping):
            raise LessonError(f"{where}: 'added_tokens_decoder' must map ids to tokens. Get the file again.")
        by_id = {_id(index, where): _added(token, where) for index, token in table.items()}
    else:
        older = read_json(folder / "special_tokens_map.json")
        named.update(older)
        if "extra_special_tokens" in older or not extra:
            extra += [token for token in _extra(older, folder / "special_tokens_map.json") if token not in extra]
        special = {_text(value, where) for value in [*(named[name] for name in NAMES if named.get(name)), *extra]}
        for text, index in read_json(folder / "added_tokens.json").items():
            token = tokenizers.AddedToken(text, normalized=text not in special, special=text in special)
            by_id[_id(index, folder / "added_tokens.json")] = token
        for entry in stored:
            by_id[_id(entry.get("id"), folder / "tokenizer.json")] = _added(entry, folder / "tokenizer.json")
    # The names that a chat template may use; a model may have others too, such as "image_token".
    names = {key: value for key, value in named.items() if key.endswith("_token") and _is_token(value, key)}
    if isinstance(by_name := named.get("extra_special_tokens"), Mapping):
        names.update(by_name)
    texts = {key: _text(value, where) for key, value in names.items()}
    result = [by_id[index] for index in sorted(by_id)]
    for token in result:
        token.special = token.special or token.content in texts.values()
    known = {token.content for token in result} | {_text(entry, folder / "tokenizer.json") for entry in stored}
    for value in [*(names[name] for name in NAMES if name in names), *names.values(), *extra]:
        if _text(value, where) not in known:
            token = _added(value, where)
            token.special = True
            result.append(token)
            known.add(token.content)
    return texts, result


def _extra(content: Mapping[str, Any], where: Path) -> list[Any]:
    """Special tokens without a name."""
    extra = content.get("extra_special_tokens") or content.get("additional_special_tokens") or []
    if not isinstance(extra, list | Mapping):
        raise LessonError(f"{where}: 'extra_special_tokens' must be a list or an object. Get the file again.")
    return list(extra) if isinstance(extra, list) else []


def _is_token(value: object, key: str) -> bool:
    """False for null and "", and for a setting such as "add_bos_token"."""
    return value not in (None, "") and (key in NAMES or not isinstance(value, bool))


def _text(value: object, where: Path) -> str:
    text = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(text, str) or not text:
        raise LessonError(f"{where}: a token must be text or an object with a 'content', but one is {str(value)[:50]}.")
    return text


def _added(value: object, where: Path) -> tokenizers.AddedToken:
    flags = {key: value[key] for key in FLAGS if key in value} if isinstance(value, Mapping) else {"special": True}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise LessonError(f"{where}: the flags of the token {_text(value, where)!r} must be true or false.")
    return tokenizers.AddedToken(_text(value, where), **flags)


def _id(value: object, where: Path) -> int:
    try:
        if isinstance(value, str | int):
            return int(value)
    except ValueError:
        pass
    raise LessonError(f"{where}: a token's id must be a whole number, but one is {str(value)[:60]!r}.")
