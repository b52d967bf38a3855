"""An engine of the learner's functions gives the real engine's tokens, with each part and with all."""

import linecache
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from llmlesson import LessonError, lessons
from llmlesson.lessons.exercise import find_exercise
from llmlesson.lessons.my_file import NAME, PARTS, load_parts, read_parts
from llmlesson.lessons.own_engine import PROMPT
from llmlesson.lessons.real import real_engine

TOKENS = 5


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def expected():
    return real_engine().generate(PROMPT, max_new_tokens=TOKENS)


cells = 0


def written(source, name, **around):
    """A function as a notebook has it: its cell's text is known, and `around` stands in other cells."""
    global cells
    cells += 1
    filename = f"<cell {cells}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names = {"__name__": "notebook", **around}
    exec(compile(source, filename, "exec"), names)
    return names[name]


def passed(exercise, source=None):
    found = find_exercise(exercise)
    report = lessons.check(exercise, written(source or found.solution, found.function_name), seed=1)
    assert report.passed, report
    return report


def test_without_a_file_it_is_the_courses_and_gives_the_engines_tokens(expected):
    mine = lessons.my_engine()
    assert "0 of 8 parts of this engine are yours" in repr(mine)
    answer = mine.answer(PROMPT, max_new_tokens=TOKENS)
    assert (answer.token_ids, answer.text, answer.finish_reason) == (expected.token_ids, expected.text, "length")


@pytest.mark.parametrize("exercise", PARTS)
def test_each_part_alone(exercise, expected, folder):
    report = passed(exercise)
    assert f"{NAME}, 1 of 8 parts of an engine" in repr(report)
    assert list(read_parts(folder / NAME)) == [exercise]
    mine = lessons.my_engine()
    assert list(mine.mine) == [exercise]
    pieces = []
    answer = mine.answer(PROMPT, max_new_tokens=TOKENS, show=pieces.append)
    assert answer.token_ids == expected.token_ids
    assert "".join(pieces) == expected.text


@pytest.mark.parametrize("which", [0, 1])
def test_all_parts_and_the_file_answers_by_itself(which, expected, folder):
    for exercise in PARTS:
        found = find_exercise(exercise)
        passed(exercise, (found.solution, *found.others)[which])
    mine = lessons.my_engine()
    assert sorted(mine.mine) == sorted(PARTS)
    assert "8 of 8 parts" in mine._repr_mimebundle_()["text/html"]
    assert mine.matches(max_new_tokens=TOKENS)
    drawn = [mine.answer("Hi", 3, temperature=1.5, seed=seed).token_ids for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    if which == 0:
        assert mine.answer("What is the capital of France?", stop=" of").text == "The capital"
        run = subprocess.run(
            [sys.executable, NAME, "What is the capital of France?"], cwd=folder, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.endswith(real_engine().generate("What is the capital of France?").text + "\n")


def test_the_first_loop_answers_until_the_second_takes_its_place(folder, monkeypatch):
    """Lesson 00's loop knows one end; the others are seen to around it, and a stop string asks for `generate`."""
    passed("answer-loop")
    mine = lessons.my_engine()
    asked = []
    guarded = mine.guarded
    monkeypatch.setattr(mine, "guarded", lambda part, *rest: (asked.append(part), guarded(part, *rest))[1])
    question = "What is the capital of France?"
    for options in ({}, {"max_new_tokens": 3}, {"max_new_tokens": 8}, {"max_new_tokens": 7}):
        theirs, asked[:] = real_engine().generate(question, **options), []
        ours = mine.answer(question, **options)
        assert (ours.token_ids, ours.text, ours.finish_reason) == (
            theirs.token_ids,
            theirs.text,
            theirs.finish_reason,
        )
        assert "answer-loop" in asked
        assert "generation-loop" not in asked
    asked.clear()
    assert mine.answer(question, stop=" of").text == "The capital"
    passed("generation-loop")
    later = lessons.my_engine()
    monkeypatch.setattr(later, "guarded", lambda part, *rest: (asked.append(part), guarded(part, *rest))[1])
    later.answer(question, 2)
    assert "generation-loop" in asked
    assert "answer-loop" not in asked


def test_a_full_cache_ends_the_first_loop(folder):
    passed("answer-loop")
    mine = lessons.my_engine()
    ids = mine.engine.tokenizer.chat("What is the capital of France?")
    short = replace(mine.engine.config, max_position_embeddings=len(ids) + 2)
    mine.engine = SimpleNamespace(
        config=short,
        request=mine.engine.request,
        model=mine.engine.model,
        tokenizer=mine.engine.tokenizer,
        eos_token_ids=mine.engine.eos_token_ids,
    )
    answer = mine.answer("What is the capital of France?", 20)
    assert (len(answer.token_ids), answer.finish_reason) == (3, "cache_full")


def test_a_part_brings_what_it_needs(folder):
    helper = written(
        "def positions(start, count):\n    return torch.arange(start, start + count)\n", "positions", torch=1
    )
    import torch

    helper.__globals__["torch"] = torch
    around = {"torch": torch, "positions": helper, "FIRST": 0}
    source = (
        "def causal_mask(cached, new):\n"
        "    return positions(FIRST, cached + new)[None, :] <= positions(cached, new)[:, None]\n"
    )
    report = lessons.check("causal-mask", written(source, "causal_mask", **around))
    assert report.kept[0] == "kept in", report
    text = read_parts(folder / NAME)["causal-mask"]
    assert "import torch\nFIRST = 0" in text
    assert text.index("def positions") < text.index("def causal_mask")
    assert list(load_parts(folder / NAME)) == ["causal-mask"]


@pytest.mark.parametrize(
    ("source", "around", "says"),
    [
        (
            "def causal_mask(cached, new):\n    return table[: cached + new] <= table[cached : cached + new, None]\n",
            "table",
            "`table`, a Tensor",
        ),
        ("import torch\nmask = lambda c, n: torch.ones(n, c + n).tril(c) == 1\n", "", "yours is <lambda>"),
        (
            "import torch\ndef my_mask(cached, new):\n    return torch.ones(new, cached + new).tril(cached) == 1\n",
            "",
            "must be called causal_mask there, but yours is my_mask",
        ),
    ],
)
def test_what_cannot_be_written_is_said(source, around, says, folder):
    import torch

    table = torch.arange(9_000)
    name = "causal_mask" if around else "mask" if "lambda" in source else "my_mask"
    report = lessons.check("causal-mask", written(source, name, **({"table": table} if around else {})))
    assert report.passed
    assert not (folder / NAME).exists()
    assert says in repr(report)


def test_without_its_text_a_function_passes_and_is_not_kept(folder):
    found = find_exercise("causal-mask")
    report = lessons.check("causal-mask", found.build(found.solution))
    assert report.passed
    assert report.kept is None
    assert list(folder.iterdir()) == []


def test_a_part_is_replaced_and_the_others_stay(folder):
    passed("causal-mask")
    passed("top-p")
    before = (folder / NAME).read_text()
    passed("causal-mask")
    assert (folder / NAME).read_text() == before
    passed("causal-mask", find_exercise("causal-mask").others[0])
    parts = read_parts(folder / NAME)
    assert list(parts) == ["causal-mask", "top-p"]
    assert "tril" in parts["causal-mask"]


def test_two_parts_with_another_helper_of_the_same_name(folder):
    helper = "def kept(x):\n    return x\n\n\n"
    passed("causal-mask", helper + find_exercise("causal-mask").solution.replace("return seen", "return kept(seen)"))
    other = helper.replace("return x", "return 1 * x") + find_exercise("top-p").solution.replace(
        "return kept / kept.sum()", "from_kept = kept\n    return total(from_kept)"
    )
    other = other.replace("def kept(x)", "def total(x)").replace("return 1 * x", "return x / x.sum()")
    passed("top-p", other)
    report = passed(
        "first-token",
        "def total(x):\n    return x\n\n\n" + find_exercise("first-token").solution.replace("x[-1]", "total(x[-1])"),
    )
    assert "the part top-p already has a different `total`" in repr(report)
    assert list(read_parts(folder / NAME)) == ["causal-mask", "top-p"]


def test_a_folder_that_cannot_be_written(folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    report = passed("causal-mask")
    assert "can't be written (Permission denied). The lesson goes on without it." in repr(report)
    assert list(folder.iterdir()) == []


def test_a_write_that_fails_leaves_the_file_as_it_was(folder, monkeypatch):
    passed("causal-mask")
    before = (folder / NAME).read_text()

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    assert "No space left on device" in repr(passed("top-p"))
    assert (folder / NAME).read_text() == before
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"def causal_mask(:\n", r"is not valid Python any more \(line 1"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"\0", "is not valid Python any more"),
        (b"import nothing_of_this_name\n", "can't be run .ModuleNotFoundError"),
        (b"causal_mask = 3\n", "causal_mask is an int, not a function"),
    ],
)
def test_a_file_that_is_broken_is_named(content, says, folder):
    (folder / NAME).write_bytes(content)
    with pytest.raises(LessonError, match=says) as raised:
        lessons.my_engine()
    assert "delete it and run the checks" in str(raised.value)
    assert (folder / NAME).read_bytes() == content


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def causal_mask(cached, new):\n    return 1 / 0\n", "causal_mask in my_engine.py failed .ZeroDivisionError"),
        (
            "def causal_mask(cached, new):\n    return None\n",
            r"causal_mask .* must return a tensor of shape \[38, 38\]",
        ),
        (
            "def keys_and_values(*a):\n    return 1, 2\n",
            r"keys_and_values .* must return 2 tensors of shape \[3, 38, 64\]",
        ),
        ("def first_token(x, model):\n    return 1, x\n", r"first_token .* must return a tensor of shape \[49152\]"),
        ("def generate(engine, ids, cache, most, stop):\n    return 'text'\n", "Your generate returned 'text'"),
        ("def new_cache(*a):\n    return None\n", "AttributeError"),
    ],
)
def test_a_part_that_was_changed_and_fails_is_named(source, says, folder):
    (folder / NAME).write_text(source)
    with pytest.raises(LessonError, match=says):
        lessons.my_engine().answer(PROMPT, max_new_tokens=2)


def test_a_wrong_part_shows(folder):
    wrong = "import torch\ndef causal_mask(cached, new):\n    return torch.ones(new, cached + new, dtype=torch.bool)\n"
    (folder / NAME).write_text(wrong)
    assert not lessons.my_engine().matches(max_new_tokens=TOKENS)
