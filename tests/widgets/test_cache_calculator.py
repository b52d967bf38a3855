"""CacheCalculator: what sizing says, for whatever is asked; without a browser, an engine or torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ipywidgets.widgets.widget import _instances
from widgets.events import VIEW, announced, click, control, pictures, problems, walk

from llmlesson.errors import LessonError
from llmlesson.sizing import DTYPES, fit, kv_cache, model_table
from llmlesson.widgets import CacheCalculator
from llmlesson.widgets.cache_calculator import CalculatorSession

LLAMA2 = "meta-llama/Llama-2-7b-hf"
TINY = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


@pytest.fixture
def calculator():
    w = CacheCalculator("Llama-3.1-8B")
    yield w
    w.close()


@pytest.mark.parametrize("name", model_table())
def test_any_model_of_the_table_is_answered_as_by_sizing(name):
    s = CalculatorSession(name)
    (answer,) = s.answers
    assert answer.size.nbytes == kv_cache(name, s.question.tokens).nbytes
    assert answer.plan == fit(name, s.question.gpu, context=s.question.tokens)
    assert dict(answer.curve)[2**16] == kv_cache(name, 2**16).nbytes


def test_it_starts_within_the_models_context():
    assert CalculatorSession("gpt2").question.tokens == 1024
    assert CalculatorSession("Llama-3.1-8B").question.tokens == 8192


def test_what_cannot_be_answered_leaves_question_and_answers_as_they_were():
    s = CalculatorSession("gpt2")  # its rows of 64 values are whole blocks of 32
    before = s.question, s.answers
    for change, says in [
        ({"tokens": 0}, "at least 1"),
        ({"batch": 10**7}, "at most 1,000,000"),
        ({"dtype": "int3"}, "choose one of"),
        ({"gpu": "H100-81GB"}, "Did you mean"),
        ({"model": "nobody/nothing"}, "not one of this calculator's models"),
        ({"other": "nobody/nothing", "tokens": 5}, "not one of this calculator's models"),
    ]:
        with pytest.raises(LessonError, match=says):
            s.ask(**change)
        assert (s.question, s.answers) == before
    with pytest.raises(LessonError, match="Did you mean"):
        CalculatorSession("Llama-3.1-8C")


def test_each_control_changes_what_it_says(calculator):
    w = calculator
    for name, value, says in [
        ("context, tokens", "128k", f"{kv_cache('Llama-3.1-8B', 128_000).nbytes:,} bytes"),
        ("batch, sequences", "4", f"128,000 tokens × 4 sequences, bf16: {131_072 * 128_000 * 4:,} bytes"),
        ("KV dtype", "fp8", f"fp8: {131_072 * 128_000 * 2:,} bytes"),
        ("GPU", "T4-16GB", "The weights alone don&#x27;t fit on T4-16GB."),
        ("compare with", LLAMA2, "Llama-2-7b-hf, 128,000 tokens"),
        ("model", "openai-community/gpt2" if "openai-community/gpt2" in model_table() else "gpt2", "gpt2, 128,000"),
    ]:
        control(w, name).value = value
        assert says in announced(w)[0]
        assert len(announced(w)) == 1, "no error"
    assert "gpt2" in pictures(w)
    control(w, "compare with").value = None
    assert "Llama-2-7b-hf, 128,000" not in pictures(w)


def test_buttons_halve_and_double_and_stop_at_the_ends(calculator):
    click(calculator, "Double the context")
    assert control(calculator, "context, tokens").value == "16,384"
    click(calculator, "Half the context")
    click(calculator, "Half the context")
    assert calculator.session.question.tokens == 4096
    assert "4,096 tokens" in announced(calculator)[0]
    calculator.session.ask(tokens=1)
    click(calculator, "Half the context")
    assert calculator.session.question.tokens == 1
    calculator.session.ask(tokens=10**9)
    click(calculator, "Double the context")
    assert "must be at most" in problems(calculator)[0]
    assert calculator.session.question.tokens == 10**9


@pytest.mark.parametrize("typed", ["", "lots", "-3", "1.5", "<script>alert(1)</script>", "9" * 5000])
@pytest.mark.parametrize("name", ["context, tokens", "batch, sequences"])
def test_no_number_is_a_message_and_the_answer_stays(calculator, name, typed):
    control(calculator, name).value = typed
    [problem] = problems(calculator)
    assert problem.startswith("✗")
    assert name.partition(",")[0] in problem or "number of tokens" in problem
    assert control(calculator, name).value == typed, "what was typed is still there to be corrected"
    field = next(part for part in walk(calculator.ui) if control(calculator, name) in getattr(part, "children", ()))
    assert problem in field.children[1].value, "right below its field"
    control(calculator, "KV dtype").value = "fp8"
    assert problems(calculator) == [problem]
    assert control(calculator, name).value == typed, "another change leaves it alone"
    control(calculator, "KV dtype").value = "bf16"
    assert calculator.session.question.tokens == 8192
    assert "<script" not in pictures(calculator)
    control(calculator, name).value = "2"
    assert problems(calculator) == []


def test_each_impossible_number_has_its_own_message(calculator):
    for name, what in (("context, tokens", "context"), ("batch, sequences", "batch")):
        for typed, says in (("0", "at least 1, but it is 0."), ("-3", "at least 1, but it is −3.")):
            control(calculator, name).value = typed
            assert problems(calculator) == [f"✗ {what} must be {says}"]
        control(calculator, name).value = "2"
    control(calculator, "batch, sequences").value = "2.5"
    assert problems(calculator) == ["✗ batch must be a whole number, not 2.5."]


def test_changes_that_come_together_are_all_taken(calculator):
    """The widget writes into no field that somebody may be typing in, so that nothing can be overwritten."""
    written = []
    fields = ("model", "compare with", "context, tokens", "batch, sequences", "KV dtype", "GPU")
    for name in fields:
        control(calculator, name).observe(lambda change, name=name: written.append(name), names="value")
    for name, value in (
        ("context, tokens", "4096"),
        ("batch, sequences", "8"),
        ("KV dtype", "fp8"),
        ("GPU", "T4-16GB"),
    ):
        control(calculator, name).value = value
    question = calculator.session.question
    assert (question.tokens, question.batch, question.dtype, question.gpu) == (4096, 8, "fp8", "T4-16GB")
    assert written == ["context, tokens", "batch, sequences", "KV dtype", "GPU"]


def test_a_dtype_that_a_model_cannot_have_is_said():
    odd = {**TINY, "hidden_size": 40, "num_key_value_heads": 1}  # heads of 10 values, no whole blocks
    w = CacheCalculator(odd)
    control(w, "KV dtype").value = "q8_0"
    assert "choose a dtype without blocks" in problems(w)[0]
    assert w.session.question.dtype == "bf16"
    w.close()


def test_all_dtypes_and_cards_can_be_chosen(calculator):
    assert control(calculator, "KV dtype").options == DTYPES
    for dtype in DTYPES:
        control(calculator, "KV dtype").value = dtype
        assert f", {dtype}: " in announced(calculator)[0]


def test_a_config_of_ones_own_is_sized_at_once_and_its_weights_counted_on_request():
    w = CacheCalculator({**TINY, "_name_or_path": "mine <b>"})
    assert w.session.question.model == "mine <b>"
    assert announced(w)[0].startswith("mine &lt;b&gt;, 2,048 tokens, bf16: 524,288 bytes")
    assert "which is not recorded for this model" in pictures(w)
    button = control(w, "Count the weights")
    assert button.layout.display is None
    click(w, "Count the weights")
    assert announced(w)[-1] == "The weights are counted."
    assert button.layout.display == "none"
    assert w.session.answers[0].plan == fit({**TINY, "_name_or_path": "mine <b>"}, w.session.question.gpu, context=2048)
    assert "<b>" not in pictures(w)
    w.close()


def test_a_model_of_the_table_needs_no_counting(calculator):
    assert control(calculator, "Count the weights").layout.display == "none"


def test_without_a_kernel_the_same_stands_there(calculator):
    calculator.session.ask(other=LLAMA2)
    bundle = calculator._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    assert bundle["text/html"] == calculator.to_html()
    for text in ("1,073,741,824", "4,294,967,296", "users at once", "<svg", "8 heads × 128 values", "Source:"):
        assert text in bundle["text/html"]
    assert bundle["text/plain"].startswith("Llama-3.1-8B, 8,192 tokens, bf16: 1,073,741,824 bytes = 1.074 GB")
    assert len(bundle["text/html"]) < 60_000


def test_closing_leaves_nothing_behind_and_it_can_be_shown_again():
    before = len(_instances)
    w = CacheCalculator("gpt2")
    w.to_html()
    assert len(_instances) == before, "no widget before it is shown"
    control(w, "batch, sequences").value = "7"
    w.close()
    w.close()
    assert len(_instances) == before
    assert control(w, "batch, sequences").value == "7"
    w.close()


def test_every_control_has_a_name(calculator):
    assert all(part.description for part in walk(calculator.ui) if hasattr(part, "disabled"))


def test_needs_no_torch():
    code = (
        "from llmlesson.widgets import CacheCalculator; import sys\n"
        "w = CacheCalculator('Llama-3.1-8B'); w._repr_mimebundle_(); w.session.ask(other='gpt2', gpu='T4-16GB')\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
