"""What `check` does with functions that no list of mistakes foresees, on an exercise made up for it."""

import copy
import random
import re

import pytest
import torch

from llmlesson import LessonError, lessons
from llmlesson.lessons import checking, real
from llmlesson.lessons.compare import difference, unchanged
from llmlesson.lessons.exercise import Case, Exercise, Mistake, find_exercise
from llmlesson.lessons.real import real_engine, real_tokenizer
from llmlesson.lessons.rounded import in_bfloat16
from llmlesson.views.exercise import shown


def cases(rng: random.Random):
    yield Case(([1, 2],), [2, 4], means="Each one times two.")
    for _ in range(5):
        numbers = [rng.randrange(100) for _ in range(3)]
        yield Case((numbers,), [2 * n for n in numbers], origin="random")


DOUBLE = Exercise(
    lesson="99",
    stub='def double(numbers):\n    """Each number doubled."""\n    return ...\n',
    hints=("one", "two"),
    solution="def double(numbers):\n    return [2 * n for n in numbers]",
    cases=cases,
    mistakes=(Mistake("def double(numbers):\n    return [n + 2 for n in numbers]", "You added two."),),
    others=(),
)


@pytest.fixture
def check(monkeypatch):
    """check(function, seed=None, **fields): on DOUBLE, with these fields of it replaced."""

    def run(function, seed=None, **fields):
        exercise = Exercise(**{**DOUBLE.__dict__, **fields})
        monkeypatch.setattr(checking, "find_exercise", lambda name: exercise)
        return checking.check("double", function, seed)

    return run


def test_what_the_function_raises_is_shown_with_its_line(check):
    def double(numbers):
        missing = {}
        return missing["<b>"]

    report = check(double)
    assert report.status == "failed"
    assert "KeyError: '<b>'" in repr(report)
    assert re.search(r'in line \d+: return missing\["<b>"\]', repr(report))
    assert "usually means" not in repr(report)  # that is about wrong values
    html = report._repr_mimebundle_()["text/html"]
    assert "<b>" not in html
    assert "KeyError: &#x27;&lt;b&gt;&#x27;" in html


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RecursionError, AssertionError])
def test_nothing_ends_the_notebook(check, error):
    def double(numbers):
        raise error

    assert check(double).status == "failed"


def test_an_endless_loop_can_be_left(check):
    def double(numbers):
        raise KeyboardInterrupt

    assert "what should end the loop never happens with this input" in repr(check(double))


def test_a_mistake_is_recognised_only_where_the_result_is_the_same(check):
    assert "You added two." in repr(check(lambda numbers: [n + 2 for n in numbers]))
    assert "You added two." not in repr(check(lambda numbers: [n + 3 for n in numbers]))


def test_a_random_case_comes_again_with_its_seed(check):
    def double(numbers):
        return [4 if n == 2 else 2 * n if n < 3 else 0 for n in numbers]

    report = check(double)
    assert report.failure.origin == "random"
    assert f'lessons.check("double", double, seed={report.failure.seed})' in repr(report)
    again = check(double, seed=report.failure.seed)
    assert repr(again) == repr(report)
    others = [check(double, seed=seed).failure.inputs for seed in range(5)]
    assert len({str(inputs) for inputs in others}) > 1


def test_changing_the_input_is_found_and_does_no_harm(check):
    def double(numbers):
        for i, n in enumerate(numbers):
            numbers[i] = 2 * n
        return numbers

    report = check(double)
    assert "changed its input: numbers" in repr(report)
    assert report.failure.inputs == {"numbers": [1, 2]}
    assert report.failure.got == [2, 4]


def test_unfinished_or_without_return(check):
    def unfinished(numbers):
        if len(numbers) == 2:
            return [2, 4]
        raise NotImplementedError

    def forgot(numbers):
        [2 * n for n in numbers]

    def blank(numbers):
        pass

    assert check(unfinished).status == "not done"
    assert check(blank).status == "not done"
    assert check(lambda numbers: ...).status == "not done"
    assert "without `return` gives None" in repr(check(forgot))


def test_not_a_function(check):
    report = check([2, 4])
    assert "It is no function but a list." in repr(report)
    assert "double, not double(…)" in repr(report)
    assert "positional argument" in repr(check(lambda: [2, 4]))


def test_a_run_that_calls_often_stops_at_the_stub(check):
    def run(function, numbers):
        try:
            return [function([n])[0] for n in numbers]
        except Exception:
            return []

    assert check(DOUBLE.build(DOUBLE.stub), run=run).status == "not done"
    assert check(DOUBLE.build(DOUBLE.solution), run=run).passed


def test_a_result_that_changes_afterwards_is_compared_as_it_was(check):
    kept = []

    def double(numbers):
        kept[:] = [2 * n for n in numbers]
        return kept

    def run(function, numbers):
        return [list(function([n])) for n in numbers]

    assert check(double).passed
    assert check(double, run=run, cases=lambda rng: [Case(([1, 2],), [[2], [4]])]).passed


EYE = torch.eye(3)


@pytest.mark.parametrize(
    ("expected", "got", "says"),
    [
        (EYE, EYE + 1e-6, None),
        (EYE, EYE.double(), r"dtype is float64, not float32. The values are right\.$"),
        (EYE, EYE.double() + 1, r"dtype is float64, not float32\.$"),
        (EYE, list(EYE), r"a list, where a tensor is expected. The values are right\.$"),
        (EYE, EYE.numpy(), r"an ndarray, where a tensor is expected. The values are right\.$"),
        (EYE, [[1.0]], r"a list, where a tensor is expected\.$"),
        (EYE, "text", r"a str, where a tensor is expected\.$"),
        (EYE, [], r"a list, where a tensor is expected\.$"),
        (EYE, EYE[:2], r"shape is \[2, 3\], not \[3, 3\]"),
        (EYE, EYE.tolist(), "a list, where a tensor is expected"),
        (EYE, EYE * torch.tensor([1, 1.5, 1]), r"1 of 9 elements differ, first at \[1, 1\]: 1.5, not 1"),
        (EYE, EYE * float("nan"), "9 of 9 elements differ"),
        (torch.tensor([0.0, -torch.inf]), torch.tensor([0.0, -torch.inf]), None),
        (torch.tensor([True]), torch.tensor([1]), "dtype is int64, not bool"),
        (torch.tensor(2.0), torch.tensor(3.0), "1 of 1 elements differ"),
        (EYE, EYE.clone().requires_grad_(), None),
        (3, 3.0, "float where a whole number"),
        (3, torch.tensor(3), r"\.item\(\) gives the number"),
        (1, True, "a bool, where an int"),
        (0.5, 0.50001, None),
        (0.5, 0.6, "off by 0.1"),
        (2.0, 2, None),
        ([1, 2], (1, 2), None),
        ([1, 2], [1, 2, 3], "length is 3, not 2"),
        ([1, [2, 3]], [1, [2, 4]], r"at \[1\]. The first difference is at \[1\]. The values differ"),
        ([1], iter([1]), r"put list\(\.\.\.\) around it"),
        ([1], (n for n in [1]), "a generator, which has computed nothing yet"),
        ({"a": EYE}, {"a": EYE}, None),
        ({"a": 1}, {}, "key 'a' is missing"),
        ({"a": 1}, {"a": 1, "b": 2}, "key 'b' should not be there"),
        ({1, 2}, {2, 1}, None),
        ({1, 2}, [1, 2], "a list, where a set"),
        ("a", b"a", "a bytes, where a str"),
        (None, 0, "an int, where None"),
    ],
)
def test_difference(expected, got, says):
    found = difference(expected, got, tolerance=1e-4)
    if says is None:
        assert found is None
    else:
        assert re.search(says, found.text)


def test_an_expected_result_must_be_comparable():
    with pytest.raises(TypeError, match="can't have the type object"):
        difference(object(), 1)


def test_unchanged_sees_into_everything():
    before = {"a": [EYE, torch.tensor([torch.nan, -torch.inf])], "b": ({1}, b"x")}
    assert unchanged(before, {"a": [EYE.clone(), torch.tensor([torch.nan, -torch.inf])], "b": ({1}, b"x")})
    assert not unchanged(before, {"a": [EYE.clone(), torch.tensor([torch.nan, 0.0])], "b": ({1}, b"x")})
    assert not unchanged([1], [1, 2])


def test_values_are_shown_in_a_few_lines():
    assert shown(torch.tensor([[1.0, 2.123456], [3, 4]])) == "tensor of shape [2, 2], float32: [[1, 2.1235], [3, 4]]"
    assert shown([torch.zeros(30, 40)]) == "[tensor of shape [30, 40], float32, beginning with [0, 0, 0, 0]]"
    large = [dict.fromkeys(range(1000), "x" * 1000), list(range(10**6)), [b"\xe2" * 10**6], {"x" * 10**6}]
    assert all(len(shown(value)) <= 400 for value in large)


def test_the_engine_that_a_lesson_names_is_used(monkeypatch):
    monkeypatch.setattr(real, "_in_use", None)
    named = copy.copy(real_engine())
    lessons.use(named)
    assert real_engine() is named
    assert real_tokenizer() is named.tokenizer
    assert real.engine_in_use() is named


def test_an_engine_that_checks_cannot_compare_with_is_not_used_for_them(monkeypatch):
    plain = real_engine()
    monkeypatch.setattr(real, "_in_use", None)
    another = copy.copy(plain)
    another.name = "another"
    for other in (in_bfloat16(plain), another):
        lessons.use(other)
        assert real_engine() is not other
        assert real.engine_in_use() is other


def test_only_an_engine_can_be_named():
    with pytest.raises(LessonError, match="takes an engine, not str"):
        lessons.use("smollm2-135m")


def test_an_input_that_only_the_check_uses_has_its_name():
    exercise = find_exercise("kv-cache")
    report = checking.check("kv-cache", exercise.build(exercise.mistakes[0].source), seed=1)
    assert list(report.failure.inputs) == ["kv_heads", "head_dim", "max_tokens", "operations"]
