"""DecodeStepper by simulated clicks: what each control does, what is shown, two on one engine."""

from __future__ import annotations

import threading

import ipywidgets
import pytest
from widgets.events import VIEW, announced, click, control, pictures, problems, walk

from llmlesson import LessonError
from llmlesson.measure import roofline
from llmlesson.widgets import DecodeStepper, decode_session

NASTY = ["<script>alert(1)</script><img src=x onerror=alert(1)>", "שלום \u202eabc", "\x1b[31m\x00\x7f", "<|im_end|>"]


@pytest.fixture(autouse=True)
def _no_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(roofline, "path", lambda: tmp_path / "roofline.json")


@pytest.fixture
def stepper(tiny_engine):
    made = DecodeStepper(tiny_engine, "a1 b", chat=False)
    assert made.ui is not None
    yield made
    made.close()
    made.wait(30)


def length(stepper):
    return stepper.session.cache.length


def test_step_and_back(stepper):
    prompt, first = length(stepper), stepper.to_html()
    click(stepper, "Step")
    assert length(stepper) == prompt + 1
    assert f"{prompt + 1} positions in the cache" in announced(stepper)[0]
    assert "Decode step 1" in pictures(stepper)
    click(stepper, "Back")
    assert length(stepper) == prompt
    assert stepper.to_html() == first
    click(stepper, "Back")
    assert announced(stepper) == ["✗ There is nothing to undo: only the prompt has been read."]
    click(stepper, "Step")
    assert "The same as before going back, bit for bit." in announced(stepper)[0]


def test_run_ends_by_itself_and_says_why(stepper):
    click(stepper, "Run")
    reason = stepper.session.finish_reason
    assert reason
    assert "Ended: " in announced(stepper)[0]
    assert "■ Ended" in pictures(stepper)
    before = length(stepper)
    click(stepper, "Step")
    assert announced(stepper)[0].startswith("✗ There is no next step")
    assert length(stepper) == before
    click(stepper, "Run")
    assert length(stepper) == before


def test_stop_ends_run_within_a_token(stepper, monkeypatch):
    """No clock: the step after the one during which Stop is pressed must not come."""
    steps, here, go_on = [], threading.Event(), threading.Event()
    step = stepper.session.step

    def slow_step():
        steps.append(length(stepper))
        here.set()
        assert go_on.wait(30)
        step()

    monkeypatch.setattr(stepper.session, "step", slow_step)
    control(stepper, "Run").click()
    assert here.wait(30)
    control(stepper, "Stop").click()
    go_on.set()
    assert stepper.wait(30)
    assert len(steps) == 1
    assert announced(stepper)[0].startswith("Stopped. New token")


def test_reset(stepper):
    prompt = length(stepper)
    click(stepper, "Step")
    click(stepper, "Take this token instead")
    click(stepper, "Reset")
    assert (length(stepper), len(stepper.session.branches)) == (prompt, 1)
    assert control(stepper, "Branch").options == (("A", 0),)
    assert announced(stepper)[0].startswith("Back at the prompt.")


def test_take_this_token_instead(stepper):
    click(stepper, "Step")
    old, candidate = stepper.session.tokens, control(stepper, "Candidate")
    assert candidate.value != old[-1], "another one is offered first"
    taken = candidate.value = candidate.options[4][1]
    click(stepper, "Take this token instead")
    assert stepper.session.tokens == [*old[:-1], taken]
    assert control(stepper, "Branch").options == (("A", 0), ("B", 1))
    assert control(stepper, "Branch").value == 1
    assert "Branches" in pictures(stepper)
    candidate.value = taken
    click(stepper, "Take this token instead")
    assert announced(stepper) == ["✗ That token is already the chosen one. Choose another candidate."]

    control(stepper, "Branch").value = 0
    assert stepper.session.tokens == old
    click(stepper, "Step")
    assert stepper.session.branch.name == "A"
    assert len(stepper.session.branches) == 2


def test_sampling_settings_change_the_bars_and_the_next_token_only(stepper):
    tokens = stepper.session.tokens
    for name, value, words in [
        ("temperature", "0.5", "temperature 0.5"),
        ("top-k (0: all)", "3", "temperature 0.5, top-k 3"),
        ("top-p (1: all)", "0.9", "temperature 0.5, top-k 3, top-p 0.9"),
    ]:
        control(stepper, name).value = value
        assert announced(stepper) == [f"The next token is chosen with {words}."]
        assert f"after {words}" in pictures(stepper)
    assert sum(candidate.after > 0 for candidate in stepper._candidates()) <= 3
    assert stepper.session.tokens == tokens
    for name, typed, says in [
        ("temperature", "-1", "temperature must be at least 0, but it is −1."),
        ("top-k (0: all)", "2.5", "top-k must be a whole number, not 2.5."),
        ("top-p (1: all)", "1.1", "top-p must be at most 1, but it is 1.1."),
        ("temperature", "warm", "“warm” is not a number: temperature takes a number such as 0.5."),
    ]:
        before = control(stepper, name).value
        control(stepper, name).value = typed
        assert problems(stepper) == [f"✗ {says}"]
        control(stepper, name).value = before
        assert problems(stepper) == []
    assert stepper.session.sampling.temperature == 0.5


def test_candidates_are_those_of_explain(stepper):
    session = stepper.session
    probabilities = session.node.logits.softmax(dim=0)
    rows = stepper._candidates()
    assert [row.before for row in rows] == pytest.approx(probabilities.topk(8).values.tolist())
    assert [row.taken for row in rows] == [True] + [False] * 7
    assert [row.after for row in rows] == [1.0] + [0.0] * 7
    session.take(int(probabilities.argmin()))
    assert stepper._candidates()[-1].taken, "one that is not among the best is added"
    assert len(stepper._candidates()) == 9


def test_another_prompt(stepper):
    click(stepper, "Step")
    control(stepper, "Prompt").value = "ab a 12 ab"
    before = stepper.session
    click(stepper, "Prefill this prompt")
    assert stepper.session is not before
    assert announced(stepper) == [f"Read the prompt: {length(stepper)} tokens."]
    for bad, message in [("", "empty"), ("x" * 5000, "5000 tokens; ")]:
        kept = stepper.session
        control(stepper, "Prompt").value = bad
        click(stepper, "Prefill this prompt")
        assert message in announced(stepper)[0]
        assert stepper.session is kept


def test_a_long_prompt_tells_how_far_it_is_and_can_be_stopped(stepper, monkeypatch):
    monkeypatch.setattr(decode_session, "CHUNK", 8)
    said, say, before = [], stepper._say, stepper.session

    def listen(text):
        said.append(text)
        say(text)
        if text.startswith("Read 16 of"):
            control(stepper, "Stop").click()

    monkeypatch.setattr(stepper, "_say", listen)
    control(stepper, "Prompt").value = "b" * 40
    click(stepper, "Prefill this prompt")
    assert said == [
        "Reading the prompt …",
        "Read 8 of the prompt's 40 tokens …",
        "Read 16 of the prompt's 40 tokens …",
        "✗ Stopped after 16 of the prompt's 40 tokens. What was there before is kept.",
    ]
    assert stepper.session is before


def test_the_limit_of_the_machine_is_shown_once_measured(stepper, monkeypatch):
    assert "roofline" not in pictures(stepper)
    peaks = roofline.Roofline("a device", "float32", 1, "2", 8, 8, 1e9, 1e10)
    monkeypatch.setattr(roofline, "measure_and_keep", lambda engine: peaks)
    click(stepper, "Measure this machine's limits")
    least = sum(peaks.place(c, 1).least_seconds for c in stepper.session.node.costs)
    assert f"{1000 * least:.1f} ms (" in pictures(stepper)


@pytest.mark.parametrize("text", NASTY)
def test_a_prompt_is_text_never_markup(tiny_engine, text):
    stepper = DecodeStepper(tiny_engine, text, chat=False)
    _ = stepper.ui
    click(stepper, "Step")
    for html in (pictures(stepper), stepper.to_html()):
        assert not any(tag in html for tag in ("<script", "<img", "\x1b", "\x00"))
    stepper.close()


def test_wrong_prompts_are_refused_in_the_cell(tiny_engine):
    for prompt in ("", "x" * 5000):
        with pytest.raises(LessonError):
            DecodeStepper(tiny_engine, prompt, chat=False)


def test_two_on_one_engine_do_not_disturb_each_other(tiny_engine):
    alone = DecodeStepper(tiny_engine, "a1", chat=False)
    _ = alone.ui
    click(alone, "Run")
    pair = [DecodeStepper(tiny_engine, "a1", chat=False) for _ in range(2)]
    for stepper in pair:
        _ = stepper.ui
        control(stepper, "Run").click()
    for stepper in pair:
        assert stepper.wait(60)
        assert stepper.session.tokens == alone.session.tokens
        stepper.close()
    alone.close()


def test_every_control_has_a_name_and_nothing_is_left(tiny_engine, live_widgets):
    stepper = DecodeStepper(tiny_engine, "a1", chat=False)
    bundle = stepper._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    kinds = ipywidgets.Button | ipywidgets.Textarea | ipywidgets.Dropdown | ipywidgets.Text
    controls = [part for part in walk(stepper.ui) if isinstance(part, kinds)]
    assert len(controls) == 14
    assert all(part.description for part in controls)
    stepper.close()
    assert live_widgets() == 0
    assert "KV cache" in stepper.to_html()
