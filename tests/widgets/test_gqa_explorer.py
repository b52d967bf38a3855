"""GQAExplorer: the heads of real models, every possible sharing, the tiling mistake; without a browser."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from ipywidgets.widgets.widget import _instances
from widgets.events import VIEW, announced, control, pictures, problems, walk

from llmlesson.errors import LessonError
from llmlesson.sizing import kv_cache, model_table
from llmlesson.widgets import GQAExplorer
from llmlesson.widgets.gqa_explorer import GQASession, sharing_name


def test_the_models_own_grouping_is_shown_first():
    s = GQASession("smollm2-135m")
    assert (s.heads, s.kv_heads, s.group) == (9, 3, 3)
    assert [reading.reads for reading in s.readings()] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert not any(reading.wrong for reading in s.readings())


@pytest.mark.parametrize("name", [name for name in model_table() if "DeepSeek" not in name])
def test_every_model_of_the_table_at_its_own_sharing_costs_what_sizing_says(name):
    s = GQASession(name)
    own = next(sharing for sharing in s.sharings() if sharing.own)
    assert own.nbytes == kv_cache(name, s.tokens).nbytes
    assert own.kv_heads == s.kv_heads


def test_cost_follows_the_number_of_kv_heads():
    sharings = {sharing.kv_heads: sharing for sharing in GQASession("Llama-3.1-8B").sharings()}
    assert list(sharings) == [1, 2, 4, 8, 16, 32]
    assert all(sharings[n].nbytes == n * sharings[1].nbytes for n in sharings)
    assert sharings[8].bytes_per_token == 131_072
    assert [sharings[n].name for n in sharings] == ["MQA", "GQA", "GQA", "GQA", "GQA", "MHA"]
    assert sharing_name(1, 1) == "MHA"


def test_tiling_gives_most_heads_the_wrong_kv_head_and_agrees_at_both_ends():
    s = GQASession("smollm2-135m")
    s.repeat("tile")
    assert [reading.reads for reading in s.readings()] == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert [reading.head for reading in s.readings() if not reading.wrong] == [0, 4, 8]
    for kv_heads in (1, 9):
        s.choose(kv_heads)
        assert not any(reading.wrong for reading in s.readings())


def test_the_two_orders_are_torchs_own():
    import torch

    s = GQASession("Llama-3.1-8B")
    kv_heads = torch.arange(s.kv_heads)
    assert [r.reads for r in s.readings()] == kv_heads.repeat_interleave(s.group).tolist()
    s.repeat("tile")
    assert [r.reads for r in s.readings()] == kv_heads.repeat(s.group).tolist()


def test_what_cannot_be_is_refused_before_anything_changes():
    s = GQASession("smollm2-135m")
    for change, wrong, says in [
        (s.choose, 2, "9 query heads can't share 2 KV heads in equal groups: choose one of 1, 3, 9"),
        (s.repeat, "shuffle", "choose one of interleave, tile"),
        (s.read_at, 0, "at least 1"),
    ]:
        with pytest.raises(LessonError, match=says):
            change(wrong)
    assert (s.kv_heads, s.order, s.tokens) == (3, "interleave", 8192)
    with pytest.raises(LessonError, match="no key-value heads"):
        GQAExplorer("deepseek-ai/DeepSeek-V3")
    with pytest.raises(LessonError, match="Did you mean"):
        GQAExplorer("Llama-3.1-8C")


def test_an_engine_or_its_config_will_do():
    from llmlesson.engine.config import parse_config

    config = parse_config(model_table()["HuggingFaceTB/SmolLM2-135M"]["config"])
    assert GQASession(config).sharings() == GQASession("smollm2-135m").sharings()
    engine = GQASession(SimpleNamespace(name="my-model", config=config))
    assert engine.spec.name == "my-model"
    assert (engine.heads, engine.own_kv_heads) == (9, 3)


def test_controls_change_the_picture_and_the_numbers():
    w = GQAExplorer("smollm2-135m")
    control(w, "number of KV heads").value = 9
    assert w.session.kv_heads == 9
    assert "9 KV heads (the model has 3): MHA. 566,231,040 bytes" in announced(w)[0].replace("&#x27;", "'")
    control(w, "context in tokens").value = "1k"
    assert "23,592" not in announced(w)[0]
    assert f"{kv_cache('smollm2-135m', 1000).nbytes * 3:,} bytes" in announced(w)[0]
    control(w, "number of KV heads").value = 3
    control(w, "KV heads are repeated by").value = "tile"
    assert "6 query heads read the wrong KV head." in announced(w)[0]
    assert "✗→2" in pictures(w)


def test_only_divisors_can_be_chosen():
    w = GQAExplorer("Qwen2.5-0.5B")
    assert [value for _, value in control(w, "number of KV heads").options] == [1, 2, 7, 14]


@pytest.mark.parametrize("typed", ["", "lots", "-3", "1.5", "<script>alert(1)</script>", "9" * 5000])
def test_a_wrong_context_is_said_and_the_picture_stays(typed):
    w = GQAExplorer("smollm2-135m")
    before = pictures(w)
    control(w, "context in tokens").value = typed
    assert w.session.tokens == 8192
    assert control(w, "context in tokens").value == typed
    assert problems(w)[0].startswith("✗")
    assert "<script" not in pictures(w)
    control(w, "context in tokens").value = "8Ki"
    assert pictures(w).startswith(before)
    assert problems(w) == []


def test_without_a_kernel_the_same_stands_there():
    w = GQAExplorer("smollm2-135m")
    w.session.repeat("tile")
    bundle = w._repr_mimebundle_()
    assert set(bundle) == {VIEW, "text/html", "text/plain"}
    assert bundle["text/html"] == w.to_html()
    for text in ("✗→0", "repeat (tile)", "188,743,680", "3 query heads"):
        assert text in bundle["text/html"]
    assert bundle["text/plain"].startswith("SmolLM2-135M: 9 query heads, 3 KV heads (the model's own): GQA.")


def test_closing_leaves_nothing_behind_and_it_can_be_shown_again():
    before = len(_instances)
    w = GQAExplorer("smollm2-135m")
    w.to_html()
    assert len(_instances) == before, "no widget before it is shown"
    control(w, "number of KV heads").value = 1
    w.close()
    w.close()
    assert len(_instances) == before
    assert control(w, "number of KV heads").value == 1
    w.close()


def test_every_control_has_a_name():
    w = GQAExplorer("smollm2-135m")
    assert all(part.description for part in walk(w.ui) if hasattr(part, "disabled"))
    w.close()


def test_needs_no_torch():
    code = (
        "from llmlesson.widgets import GQAExplorer; import sys\n"
        "GQAExplorer('smollm2-135m')._repr_mimebundle_(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
