"""What may be given as a prompt: the same meaning in every form, and a message that says what to give otherwise."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BatchEncoding

from llmlesson import LessonError

USER = {"role": "user", "content": "Hello there"}


@pytest.mark.parametrize(
    "form",
    [
        lambda ids: list(ids),
        lambda ids: tuple(ids),
        lambda ids: torch.tensor(ids),
        lambda ids: torch.tensor(ids, dtype=torch.int32),
        lambda ids: torch.tensor([ids]),
        lambda ids: [list(ids)],
        lambda ids: numpy.array(ids),
        lambda ids: numpy.array([ids], dtype=numpy.uint16),
        lambda ids: [numpy.int64(token) for token in ids],
        lambda ids: BatchEncoding({"input_ids": ids, "attention_mask": [1] * len(ids)}),
        lambda ids: BatchEncoding({"input_ids": torch.tensor([ids])}),
        lambda ids: {"input_ids": ids},
    ],
)
def test_ids_in_every_form(tiny_pair, ids, form):
    engine, prompt = tiny_pair("gqa")[0], ids(7)
    assert engine.prompt_ids(form(prompt)) == prompt
    assert engine.generate(form(prompt), 3).token_ids == engine.generate(prompt, 3).token_ids


@pytest.mark.parametrize(
    "messages",
    [
        "Hello there",
        USER,
        [USER],
        (USER,),
        {**USER, "name": None},
        {"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}]},
        {"role": "user", "content": ["Hello there"]},
    ],
)
def test_messages_in_every_form(real, messages):
    assert real.prompt_ids(messages) == real.tokenizer.chat("Hello there")


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (None, "Nothing .None. is not a prompt"),
        (7, "type int is not a prompt"),
        (0.5, "type float is not a prompt"),
        (b"Hello", r"Turn bytes into text with \.decode"),
        ({"Hello"}, "type set is not a prompt"),
        (iter([1, 2]), "is not a prompt"),
        (["Hello", "there"], "a list of 2 texts"),
        ([USER, "there"], "type str in a list"),
        ([1, "a"], "type int in a list"),
        ([None], "None. in a list"),
        ([[1, 2], [3]], "type list in a list"),
        ({}, "has no role"),
        ({"role": "user"}, "has no content"),
        ({"role": "user", "content": None}, "has no content"),
        ({"content": "Hello"}, "has no role"),
        ({"role": 5, "content": "Hello"}, "role must be text, not int"),
        ({"role": "user", "content": 5}, "content must be text, not int"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, "content is not text"),
        ([], "at least one token"),
        ([1.5], "whole numbers, not"),
        ([True], "whole numbers, not"),
        (torch.ones(2, 2, dtype=torch.int64), "one list of token ids"),
        (numpy.array(["a"]), "list of token ids is needed"),
        ([10**30], "list of token ids is needed"),
        ([49152], "no token with the id 49152"),
    ],
)
@pytest.mark.parametrize("chat", [True, False])
def test_what_is_no_prompt(real, prompt, says, chat):
    with pytest.raises(LessonError, match=says):
        real.prompt_ids(prompt, chat)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "input_ids", "x"]), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(prompt=ODD, chat=st.booleans(), new=st.none() | st.integers(-2, 2) | st.floats(), stop=ODD)
def test_no_other_error_reaches_a_user(real, prompt, chat, new, stop):
    try:
        request = real.request(prompt, new, stop=stop, chat=chat)
    except LessonError:
        return
    assert request.ids
    assert all(type(token) is int for token in request.ids)


@pytest.mark.parametrize("value", [0, -1, 2.0, None, True, "3", float("nan")])
def test_max_new_tokens_is_a_whole_number(tiny_pair, value):
    with pytest.raises(LessonError, match=r"max_new_tokens must be (a whole number|at least 1)"):
        tiny_pair("gqa")[0].stream([1], max_new_tokens=value)
