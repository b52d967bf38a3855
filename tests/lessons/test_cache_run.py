"""The real model on a learner's cache: a right one gives the engine's scores, a wrong one is told from it."""

import pytest

from llmlesson import LessonError
from llmlesson.lessons.cache_run import run_cache
from llmlesson.lessons.exercise import find_exercise
from llmlesson.lessons.real import real_engine

EXERCISE = find_exercise("kv-cache")


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
    assert "✗ Your cache gives other scores" in repr(found)


def test_a_cache_that_fails_is_named():
    with pytest.raises(LessonError, match=r"Your cache failed at position 0 \(TypeError"):
        run(EXERCISE.solution.replace("        return self.keys[:, :end], self.values[:, :end]\n", ""))
