"""Wherever a folder names its special tokens, they are those that transformers finds."""

from __future__ import annotations

import itertools
import json

import pytest
import transformers
from engine import tiny
from engine.test_tokenizer_families import CHATML, byte_level

import llmlesson
from llmlesson import LessonError
from llmlesson.engine.tokenizer import Tokenizer

BOS, EOS = "<|im_start|>", "<|im_end|>"
TEMPLATE = "{{ bos_token }}" + CHATML + "{{ eos_token }}{{ pad_token }}"


def as_token(text, **flags):
    return {"content": text, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, **flags}


WHERE = {
    "tokenizer": ["with added tokens", "with others", "plain"],
    "settings": [
        None,
        {},
        {"bos_token": BOS, "eos_token": EOS},
        {
            "bos_token": {"__type": "AddedToken", **as_token(BOS)},
            "eos_token": as_token(EOS, __type="AddedToken"),
        },
        {"bos_token": None, "eos_token": "<think>", "image_token": "<image>"},
        {"eos_token": "<|new|>", "additional_special_tokens": ["<|call|>", "<|im_end|>"]},
    ],
    "decoder": [
        None,
        {"1": as_token(BOS, special=True), "2": as_token(EOS, special=True)},
        {"400": as_token("<|other|>", special=True), "399": as_token("<tool>", special=False)},
    ],
    "map": [None, {"bos_token": BOS, "eos_token": EOS}, {"bos_token": as_token("<s>"), "eos_token": as_token(EOS)}],
    "older": [None, {"<|call|>": 500, EOS: 2}],
}


@pytest.fixture(scope="module")
def plain():
    """A tokenizer of which nothing is an added token, and its vocabulary holds BOS and EOS."""
    content = json.loads(byte_level(bos=False)[0].to_str())
    added = {
        "with added tokens": content["added_tokens"],
        "with others": [token for token in content["added_tokens"] if "think" in token["content"]],
        "plain": [],
    }
    return {kind: {**content, "added_tokens": tokens} for kind, tokens in added.items()}


def write(folder, plain, tokenizer, settings, decoder, map, older):
    content = {"tokenizer.json": plain[tokenizer], "special_tokens_map.json": map, "added_tokens.json": older}
    if settings is not None or decoder is not None:
        content["tokenizer_config.json"] = {
            **(settings or {}),
            **({} if decoder is None else {"added_tokens_decoder": decoder}),
        }
    for name, value in content.items():
        (folder / name).unlink(missing_ok=True)
        if value is not None:
            (folder / name).write_text(json.dumps(value))
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def test_every_combination_of_places_is_as_in_transformers(tmp_path, plain):
    text = f"Hello{BOS}user{EOS}<s> <think>x</think><|new|><|call|><tool><image><|other|> there"
    messages = [{"role": "user", "content": "Hello world"}]
    for combination in itertools.product(*WHERE.values()):
        write(tmp_path, plain, *combination)
        reference = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
        ours = Tokenizer(tmp_path)
        assert ours.token_names == reference.special_tokens_map, combination
        assert ours.special_tokens == reference.added_tokens_encoder, combination
        ids = reference.encode(text, add_special_tokens=False)
        assert ours.encode(text, special=True) == ids, combination
        assert ours.decode(ids) == reference.decode(ids, skip_special_tokens=True), combination
        assert ours.eos_token == reference.eos_token, combination
        chat = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert ours.chat(messages) == chat, combination
        assert not set(ours.encode(text)) & set(reference.added_tokens_encoder.values()), combination


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("special_tokens_map.json", {"eos_token": EOS}),
        ("special_tokens_map.json", {"eos_token": as_token(EOS)}),
        ("tokenizer_config.json", {"eos_token": as_token(EOS, __type="AddedToken")}),
        ("tokenizer_config.json", {"eos_token": EOS, "added_tokens_decoder": {"2": as_token(EOS, special=True)}}),
    ],
)
def test_generation_ends_wherever_the_end_is_named(tmp_path, plain, name, content):
    tiny.make("gqa", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain["plain"]))
    (tmp_path / name).write_text(json.dumps(content))
    assert llmlesson.load(tmp_path).eos_token_ids == {2}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", {"eos_token": 5}, "a token must be text"),
        ("tokenizer_config.json", {"eos_token": True}, "a token must be text"),
        ("tokenizer_config.json", {"bos_token": {"text": "x"}}, "a token must be text"),
        ("tokenizer_config.json", {"added_tokens_decoder": ["<s>"]}, "must map ids to tokens"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"one": as_token("<s>")}}, "id must be a whole number"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"1": as_token("<s>", lstrip="yes")}}, "true or false"),
        ("tokenizer_config.json", {"extra_special_tokens": "x"}, "must be a list or an object"),
        ("special_tokens_map.json", {"eos_token": ["x"]}, "a token must be text"),
        ("added_tokens.json", {"<x>": None}, "id must be a whole number"),
    ],
)
def test_special_tokens_of_the_wrong_kind_are_refused_by_name(tmp_path, plain, name, content, message):
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain["plain"]))
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(LessonError, match=message):
        Tokenizer(tmp_path)
