"""Whatever is given to a public function, the answer is a result or a LessonError: no other error reaches a user."""

from __future__ import annotations

import contextlib
import math

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llmlesson
from llmlesson import LessonError, Sampling

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.lists(st.integers() | st.text(max_size=2) | st.none(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from([torch.tensor(3), torch.ones(2, 2), numpy.int64(5), numpy.ones(2), object(), len, ...]),
)

# A function of (engine, cache, two values of any kind), by name.
CALLS = {
    "new_cache": lambda engine, cache, a, b: engine.new_cache(a),
    "prefill": lambda engine, cache, a, b: engine.prefill(a),
    "prefill in chunks": lambda engine, cache, a, b: engine.prefill([1, 2], chunk=b),
    "prefill on": lambda engine, cache, a, b: engine.prefill(a, cache),
    "prefill into": lambda engine, cache, a, b: engine.prefill([1], a),
    "decode": lambda engine, cache, a, b: engine.decode(cache, a),
    "decode with": lambda engine, cache, a, b: engine.decode(a, 1),
    "read": lambda engine, cache, a, b: engine.read(a, cache, b),
    "logits": lambda engine, cache, a, b: engine.logits(a),
    "logits into": lambda engine, cache, a, b: engine.logits([1], a),
    "record": lambda engine, cache, a, b: engine.record(a).__enter__(),
    "truncate": lambda engine, cache, a, b: cache.truncate(a),
    "keys": lambda engine, cache, a, b: cache.keys(a),
    "values": lambda engine, cache, a, b: cache.values(a),
    "stream": lambda engine, cache, a, b: engine.stream([1], 2, sampling=a, stop=b),
    "stream into": lambda engine, cache, a, b: engine.stream([1], 2, cache=a),
    "generate": lambda engine, cache, a, b: engine.generate(
        [1], a if a is None or isinstance(a, int) is False else 1, b
    ),
    "temperature": lambda engine, cache, a, b: Sampling(temperature=a, top_p=b),
    "top_k": lambda engine, cache, a, b: Sampling(top_k=a, min_p=b),
    "seed": lambda engine, cache, a, b: engine.generate([1], 1, Sampling(1.0, seed=a)),
    "penalty": lambda engine, cache, a, b: Sampling(repetition_penalty=a),
    "explain": lambda engine, cache, a, b: Sampling().explain(a),
}


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_engine(tiny_pair, name, data):
    engine = tiny_pair("gqa")[0]
    cache, _ = engine.prefill([1, 2, 3], engine.new_cache(20))
    before = [cache.keys(layer).clone() for layer in range(cache.num_layers)]
    try:
        CALLS[name](engine, cache, data.draw(ANYTHING), data.draw(ANYTHING))
    except LessonError:
        assert cache.length == 3
        assert all(torch.equal(cache.keys(layer), before[layer]) for layer in range(cache.num_layers))
    finally:
        engine.model.recording = None


TOKENIZER_CALLS = {
    "encode": lambda tokenizer, a: tokenizer.encode(a),
    "encode special": lambda tokenizer, a: tokenizer.encode(a, special=True),
    "decode": lambda tokenizer, a: tokenizer.decode(a),
    "token": lambda tokenizer, a: tokenizer.token(a),
    "chat": lambda tokenizer, a: tokenizer.chat(a),
    "raw": lambda tokenizer, a: tokenizer.raw(a),
    "push": lambda tokenizer, a: tokenizer.stream().push(a),
}


@pytest.mark.parametrize("name", TOKENIZER_CALLS)
@given(value=ANYTHING)
@settings(deadline=None, max_examples=40)
def test_the_tokenizer(real, name, value):
    with contextlib.suppress(LessonError):
        TOKENIZER_CALLS[name](real.tokenizer, value)


@pytest.mark.parametrize("argument", ["model", "device", "dtype"])
@pytest.mark.parametrize("value", [None, 5, 0.5, b"cpu", [], {}, object(), True, "", "no such thing", "a\0b"])
def test_load(argument, value):
    with pytest.raises(LessonError):
        llmlesson.load(**{argument: value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("seed", value) for value in (0.5, 1.0, "1", True, 2**64, -(2**63) - 1, [1], math.nan)),
        *(("temperature", value) for value in (-1, math.nan, math.inf, "1", None, True, [1], 1j)),
        *(("top_k", value) for value in (-1, 2.0, "5", True, math.nan)),
        *(("top_p", value) for value in (-0.1, 1.1, math.nan, "0.5", True)),
        *(("min_p", value) for value in (-0.1, 1.1, math.nan, "0.5", False)),
        *(("repetition_penalty", value) for value in (0, -1, math.inf, math.nan, "1", None, True)),
    ],
)
def test_a_wrong_setting_is_named_at_the_call(setting, value):
    with pytest.raises(LessonError, match=f"^{setting} "):
        Sampling(**{setting: value})


@pytest.mark.parametrize("seed", [0, -1, -(2**63), 2**64 - 1, numpy.int64(3), None])
def test_seeds_that_work(tiny_pair, seed):
    assert tiny_pair("gqa")[0].generate([1], 2, Sampling(1.0, seed=seed)).token_ids


@pytest.mark.parametrize("value", [numpy.float32(0.5), torch.tensor(0.5), 1, 0])
def test_numbers_of_other_libraries_are_numbers(value):
    Sampling(temperature=value, top_p=value, min_p=value)
