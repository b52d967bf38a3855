"""The real model on a learner's cache: a right one gives the engine's scores, a wrong one is told from it."""

import re
from types import SimpleNamespace

import pytest

from llmlesson import LessonError
from llmlesson.lessons.cache_run import _Learners, run_cache
from llmlesson.lessons.exercise import find_exercise
from llmlesson.lessons.real import real_engine

EXERCISE = find_exercise("kv-cache")
CONFIG = SimpleNamespace(num_key_value_heads=2, head_dim=4, num_hidden_layers=3)


def run(source):
    engine = real_engine()
    return run_cache(EXERCISE.build(source), engine, engine.tokenizer.chat("Hi"), tokens=3)


@pytest.mark.parametrize("source", [EXERCISE.solution, *EXERCISE.others])
def test_a_right_cache_gives_the_engines_tokens_and_scores(source):
    engine, found = real_engine(), run(source)
    assert found.right
    assert found.token_ids == engine.generate("Hi", max_new_tokens=3).token_ids
    assert len(found.seconds) == len(found.engine_seconds) == 3
    assert "✓ Your cache carried the real model through 3 tokens" in found._repr_mimebundle_()["text/html"]


def test_swapped_keys_and_values_give_other_scores():
    found = run(
        EXERCISE.solution.replace("return self.keys[:, :end], self.values", "return self.values[:, :end], self.keys")
    )
    assert not found.right
    assert "✗ In 3 tokens, logits with your cache differ" in repr(found)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (EXERCISE.stub, "○ the real model on your cache: not done yet. Write your cache in the exercise above"),
        (
            EXERCISE.stub.replace("return ...", "return KVCache(kv_heads, head_dim, max_tokens)"),
            "append is still empty",
        ),
    ],
)
def test_a_stub_is_not_done(source, message):
    found = run(source)
    assert found.status == "not done"
    assert message in repr(found)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("        return self.keys[:, :end], self.values[:, :end]\n", "", r"failed at position 0 \(TypeError"),
        ("return KVCache(kv_heads, head_dim, max_tokens)", "return [max_tokens]", "which has no append"),
        (
            "return KVCache(kv_heads, head_dim, max_tokens)",
            "return KVCache(kv_heads, head_dim, 7)",
            "ValueError: no room",
        ),
    ],
)
def test_a_cache_that_fails_is_named_and_stops_nothing(wrong, right, message):
    assert wrong in EXERCISE.solution
    found = run(EXERCISE.solution.replace(wrong, right))
    assert found.status == "failed"
    assert re.search(message, repr(found))


def test_a_curve_of_one_token_is_refused():
    with pytest.raises(LessonError, match="tokens is 1"):
        run_cache(EXERCISE.build(EXERCISE.solution), real_engine(), [1], tokens=1)


def test_a_learners_memory_is_taken_where_the_model_is():
    cache = _Learners(EXERCISE.build(EXERCISE.solution), SimpleNamespace(model=None, config=CONFIG, device="meta"), 4)
    assert {layer.keys.device.type for layer in cache.layers} == {"meta"}
