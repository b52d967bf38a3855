"""`llmlesson size`, from the user's seat."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from llmlesson.cli import main
from llmlesson.sizing import kv_cache, model_table


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(["size", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_answer_states_the_size_and_what_k_means(capsys):
    status, out, _ = run(capsys, "Qwen3-0.6B", "--tokens", "128k", "--batch", "8", "--dtype", "fp8")
    assert status == 0
    assert "128,000 tokens (128k; k and M decimal, Ki and Mi binary) × 8 sequences, fp8" in out
    assert "58,720,256,000 bytes = 58.72 GB (10⁹) = 54.69 GiB (2³⁰)" in out


def test_explain(capsys):
    _, out, _ = run(capsys, "Qwen3-0.6B", "--tokens", "100", "--explain")
    assert out.strip() == kv_cache("Qwen3-0.6B", 100).explain()


def test_verify_finds_equal_layers(capsys):
    status, out, _ = run(capsys, "SmolLM2-135M", "--tokens", "50", "--verify", "--dtype", "fp8")
    assert status == 0
    assert "Verified at 50 tokens × 1, bf16, hf_dynamic: all 30 layers equal transformers' own, 1,152,000 bytes" in out


def test_verify_reports_a_layer_that_differs(capsys, monkeypatch):
    from llmlesson.commands import size

    honest = size.measure
    monkeypatch.setattr(size, "measure", lambda name, tokens, *rest: honest(name, tokens + 1, *rest))
    status, out, _ = run(capsys, "SmolLM2-135M", "--tokens", "50", "--verify")
    assert status == 1
    assert "NOT verified" in out


def test_json(capsys):
    _, out, _ = run(capsys, "gemma-3-1b-it", "--tokens", "2Ki", "--gpu", "T4-16GB", "--json")
    answer = json.loads(out)
    assert answer["tokens"] == 2048
    assert answer["nbytes"] == sum(layer["nbytes"] for layer in answer["per_layer"])
    assert answer["gpu"]["fits"] is True


def test_compare(capsys):
    _, out, _ = run(capsys, "--compare", "Llama-2-7b-hf", "Qwen2.5-7B", "--tokens", "1000")
    rows = [line for line in out.splitlines() if "MHA" in line or "GQA" in line]
    assert [row.split()[0] for row in rows] == ["meta-llama/Llama-2-7b-hf", "Qwen/Qwen2.5-7B"]
    assert "524,288" in rows[0]
    _, out, _ = run(capsys, "--compare", "gpt2", "Qwen2.5-7B", "--json")
    assert [entry["model"] for entry in json.loads(out)] == ["gpt2", "Qwen/Qwen2.5-7B"]


def test_gpu(capsys):
    _, out, _ = run(capsys, "Llama-3.1-8B", "--gpu", "H100-80GB", "--weights-dtype", "fp8")
    assert "users" in out
    assert "H100-80GB: weights fp8, cache bf16" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name one model"),
        (["gpt2", "--compare", "gpt2"], "Name one model"),
        (["--compare", "gpt2", "gpt2-xl", "--verify"], "leave --compare out"),
        (["gpt2", "--tokens", "0"], "tokens must be at least 1"),
        (["gpt2", "--tokens", "lots"], "'lots' is not a number of tokens"),
        (["gpt2", "--gpu", "abacus"], "'abacus' is not in the GPU table"),
        (["no-such-model"], "No model is called 'no-such-model'"),
    ],
)
def test_bad_input_is_one_line_on_stderr(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_table_model_needs_no_heavy_import():
    """What makes the answer quick: neither torch nor transformers is imported, nor anything of the hub."""
    code = (
        "import sys; from llmlesson.cli import main;"
        "status = main(['size', 'DeepSeek-V3', '--gpu', 'H200-141GB', '--tp', '8']);"
        "heavy = {'torch', 'transformers', 'numpy', 'huggingface_hub', 'plotly'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_lists_what_there_is(capsys):
    with pytest.raises(SystemExit):
        main(["size", "--help"])
    out = capsys.readouterr().out
    assert "128k = 128,000" in out
    assert "H100-80GB" in out
    assert all(name.rpartition("/")[2] in out for name in model_table())
