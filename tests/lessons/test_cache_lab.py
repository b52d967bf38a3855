"""The toy engine: right without a bug; with each, wrong in its own way, some loud, some silent for many tokens."""

import inspect

import pytest
import torch

from llmlesson import LessonError
from llmlesson.lessons.broken_cache import BUGS, LINES, WINDOW, ToyEngine
from llmlesson.lessons.cache_lab import PATIENTS, STEPS, WRONG_LOGIT, CacheLab
from llmlesson.lessons.real import real_engine


@pytest.fixture(scope="module")
def lab():
    return CacheLab(real_engine())


@pytest.fixture(scope="module")
def signs(lab):
    return {bug: lab.symptoms(bug).signs() for bug in BUGS}


def test_without_a_bug_it_is_the_engine():
    engine = real_engine()
    cache, toy = engine.new_cache(64), ToyEngine(engine)
    for ids in (engine.tokenizer.chat("Hi"), [504], [260], [28, 338, 5]):  # a prompt, two steps, three at once
        assert torch.allclose(toy.read(ids), engine.logits(ids, cache)[-1], atol=1e-3)
    for layer in (0, 15, 29):
        assert torch.allclose(toy.keys[layer], cache.keys(layer), atol=1e-3)
        assert torch.allclose(toy.values[layer], cache.values(layer), atol=1e-3)


def test_without_a_bug_there_are_no_symptoms(lab):
    sound = lab.symptoms(None)
    assert max(*sound.differences, sound.second_turn) < WRONG_LOGIT
    assert (sound.departs, sound.wrong_keys, sound.wrong_values) == (None, [], [])
    assert sound.lengths == sound.right_lengths


def test_every_bug_changes_a_line_of_its_own():
    assert list(LINES) == list(BUGS)
    assert len(set(LINES.values())) == len(BUGS)
    source = [line.strip() for line in inspect.getsource(ToyEngine.read).splitlines()]
    for bug, line in LINES.items():
        [switch] = [i for i, text in enumerate(source) if f'self.bug == "{bug}"' in text]
        assert source[switch + 1] == line


def test_every_bug_has_a_patient_and_symptoms_of_its_own(signs):
    assert sorted(PATIENTS.values()) == sorted(BUGS)
    assert len({tuple(found.values()) for found in signs.values()}) == len(BUGS)


def test_only_one_is_wrong_in_the_prompt(lab):
    assert {bug for bug in BUGS if lab.symptoms(bug).differences[0] > WRONG_LOGIT} == {"swapped"}
    assert all(lab.symptoms(bug).second_turn > WRONG_LOGIT for bug in BUGS)


def test_loud_and_silent(lab):
    departs = {bug: lab.symptoms(bug).departs for bug in BUGS}
    assert all(departs[bug] <= 2 for bug in ("swapped", "unrotated", "again", "restart"))
    assert departs["own-token"] > 4
    assert departs["late"] is None  # wrong logits in every step, and yet the right words
    assert min(lab.symptoms("late").differences[1:]) > WRONG_LOGIT


def test_right_until_the_window_is_full(lab):
    window = lab.symptoms("window")
    full = WINDOW - window.lengths[0]  # steps that still fit; one more sees them all
    assert window.first_wrong_step == full + 2
    assert window.lengths[1:] == (WINDOW, WINDOW)


def test_a_mask_at_the_top_left_is_right_for_single_steps(lab):
    top_left = lab.symptoms("top-left")
    assert top_left.first_wrong_step is None
    assert top_left.second_turn > 1


def test_what_layer_0_shows(lab):
    """There, K and V are made from the token alone: only what stores or turns them can make them wrong."""
    prompt, _, everything = lab.symptoms("late").right_lengths
    answer = list(range(prompt, everything))
    assert {bug: lab.symptoms(bug).wrong_keys for bug in BUGS} == {
        "restart": answer,
        "late": answer,
        "own-token": [],
        "top-left": [],
        "unrotated": list(range(1, everything)),  # at position 0 there is nothing to turn
        "again": None,
        "window": None,
        "swapped": list(range(everything)),
    }
    assert [bug for bug in BUGS if lab.symptoms(bug).wrong_values] == ["swapped"]


def test_reading_again_shows_in_the_length(lab):
    prompt, steps, _ = lab.symptoms("again").lengths
    assert steps == prompt + sum(prompt + i for i in range(1, 1 + STEPS))


def test_the_signs_hang_on_no_tie(lab):
    """Up to its first wrong token each patient chooses clearly, so that every machine shows the same."""
    engine = lab.engine
    prompt = engine.tokenizer.chat("Explain quantum computing like I'm ten.")
    right = engine.generate(prompt, max_new_tokens=1 + STEPS).token_ids
    for bug in BUGS:
        departs, toy, ids = lab.symptoms(bug).departs, ToyEngine(engine, bug), prompt
        for step, token in enumerate(right[: STEPS if departs is None else departs + 1]):
            logits = toy.read(ids)
            rival = logits.index_fill(0, torch.tensor(token), -torch.inf).max()
            assert (logits[token] - rival) * (-1 if step == departs else 1) > 0.01, (bug, step)
            ids = [token]


def test_a_diagnosis_is_checked(lab):
    right = lab.check(PATIENTS)
    assert right.passed
    assert all(line in repr(right) for line in LINES.values())
    some = lab.check({"A": "again", "E": "restart", "F": ...})
    assert not some.passed
    assert [result for result, _ in some.patients.values()] == ["right", *["open"] * 3, "wrong", *["open"] * 3]
    assert "“text departs” would say: at token 3. Here it says: not in" in repr(some)
    assert "1 of 8" in some.to_html()
    assert lab.check({}).to_html().count("not done yet") == 8


def test_every_wrong_guess_is_answered_with_a_sign_that_speaks_against_it(lab):
    for guess in BUGS:
        verdict = lab.check(dict.fromkeys(PATIENTS, guess))
        assert [result for result, _ in verdict.patients.values()].count("wrong") == len(BUGS) - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lab: lab.check({"Z": "late"}), "no patient 'Z'"),
        (lambda lab: lab.check({"A": "flu"}), "'flu' is not on the list of bugs"),
        (lambda lab: lab.patient("late"), "no patient 'late'"),
        (lambda lab: lab.patient(["A"]), r"no patient \['A'\]"),
        (lambda lab: lab.check(["late"] * 8), "a dict with a bug for each patient, .* not a list"),
        (lambda lab: lab.check("late"), "a dict with a bug for each patient, .* not a str"),
        (lambda lab: lab.check(None), "a dict with a bug for each patient, .* not None"),
        (lambda lab: lab.check({"A": ["late"]}), r"\['late'\] is not on the list of bugs"),
        (lambda lab: lab.check({7: "late"}), "no patient 7"),
        (lambda lab: ToyEngine(lab.engine, "flu"), "no bug 'flu'"),
    ],
)
def test_unknown_names(lab, call, message):
    with pytest.raises(LessonError, match=message):
        call(lab)


def test_a_planted_bug_is_diagnosed_by_the_neighbour(lab):
    theirs = CacheLab(lab.engine)
    theirs._known = lab._known  # examined already
    for bug in BUGS:
        text = lab.plant(bug)
        assert bug not in text
        theirs.admit(f" {text}\n", "N")
        assert theirs.check({"N": bug}).patients["N"][0] == "right"
        assert "N: logits wrong" in repr(theirs.ward())
    assert "N" not in lab.patients
    for text in ("", "late", lab.plant("late")[:-1], None):
        with pytest.raises(LessonError, match="This is not a patient"):
            theirs.admit(text)
    with pytest.raises(LessonError, match="'A' can't be the new patient's name"):
        theirs.admit(lab.plant("late"), "A")
    with pytest.raises(LessonError, match="'flu' is not on the list"):
        lab.plant("flu")


def test_pictures_say_what_they_show(lab):
    one = lab.examine("E")
    assert 'aria-label="Logit differences: prompt 0.0, 1 ' in one.to_html()
    assert "designed to explain" in repr(one)
    assert "<mark" not in one.to_html()
    assert "<mark" in lab.examine("H").to_html()
    ward = lab.ward()
    assert all(f"<bdi>{name}</bdi>" in ward.to_html() for name in PATIENTS)
    assert len(repr(ward).splitlines()) == len(PATIENTS)
