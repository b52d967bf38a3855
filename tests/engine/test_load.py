"""What loads, and what is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from engine import tiny
from safetensors.torch import load_file, save_file

import llmlesson
from llmlesson import LessonError
from llmlesson.engine.config import parse_config

LLAMA = dict(
    model_type="llama",
    vocab_size=100,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
)


@pytest.fixture
def folder(tmp_path):
    tiny.make("gqa", tmp_path)
    return tmp_path


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_shards_are_the_same_model(tmp_path, tiny_pair, ids):
    tiny.make("gqa", tmp_path, shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    prompt = ids(12)
    # Close, not equal: each load chooses a thread count, and with it an order of summation.
    torch.testing.assert_close(llmlesson.load(tmp_path).logits(prompt), tiny_pair("gqa")[0].logits(prompt))


def test_a_missing_shard_is_named(tmp_path):
    tiny.make("gqa", tmp_path, shard_size="60KB")
    gone = sorted(tmp_path.glob("model-*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(LessonError, match=gone.name):
        llmlesson.load(tmp_path)


def test_missing_unexpected_and_wrongly_shaped_tensors_are_named(folder):
    name = "model.layers.1.mlp.up_proj.weight"
    good = (folder / "model.safetensors").read_bytes()
    edit_weights(folder, lambda tensors: tensors.pop(name))
    with pytest.raises(LessonError, match=f"lack.*{name}"):
        llmlesson.load(folder)
    (folder / "model.safetensors").write_bytes(good)
    edit_weights(folder, lambda tensors: tensors.update({name: tensors[name].T.contiguous()}))
    with pytest.raises(LessonError, match=rf"{name}.*\[60, 77\].*\[77, 60\]"):
        llmlesson.load(folder)
    (folder / "model.safetensors").write_bytes(good)
    edit_weights(folder, lambda tensors: tensors.update({"model.layers.1.extra": torch.zeros(2)}))
    with pytest.raises(LessonError, match=r"model\.layers\.1\.extra"):
        llmlesson.load(folder)
    (folder / "model.safetensors").write_bytes(good[: len(good) // 2])
    with pytest.raises(LessonError, match="can't be read"):
        llmlesson.load(folder)


def test_tied_weights_are_found_out_where_the_config_is_silent(tmp_path, ids):
    tiny.make("tied", tmp_path)
    prompt = ids(9)
    expected = llmlesson.load(tmp_path).logits(prompt)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["tie_word_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.testing.assert_close(llmlesson.load(tmp_path).logits(prompt), expected)


def test_end_of_sequence_ids_are_the_union(folder):
    edit_config(folder, eos_token_id=2)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 7]}))
    assert llmlesson.load(folder).eos_token_ids == {2, 5, 7}


def test_old_and_new_spelling_of_rope_are_one():
    scaling = {key: value for key, value in tiny.LLAMA3_ROPE.items() if key != "rope_theta"}
    old = parse_config({**LLAMA, "rope_theta": 10_000.0, "rope_scaling": scaling})
    assert old == parse_config({**LLAMA, "rope_parameters": tiny.LLAMA3_ROPE})
    assert old != parse_config(LLAMA)
    older = {"type": "default"}
    assert parse_config({**LLAMA, "rope_theta": 5e5, "rope_scaling": older}).rope_theta == 5e5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model_type="gpt2"), "'gpt2' is not supported.*llama, mistral, qwen2"),
        (dict(model_type="qwen3_moe"), "'qwen3_moe' is not supported"),
        (dict(model_type="mistral"), "sliding-window"),
        (dict(model_type="qwen2", use_sliding_window=True, sliding_window=4096), "sliding-window"),
        (dict(layer_types=["full_attention", "sliding_attention"]), "sliding-window"),
        (dict(quantization_config={"quant_method": "awq"}), "quantized.*awq"),
        (dict(attention_bias=True), "attention_bias"),
        (dict(hidden_act="gelu"), "gelu"),
        (dict(rope_parameters={"rope_type": "yarn", "factor": 4.0}), "yarn"),
        (dict(rope_scaling={"rope_type": "llama3", "factor": 8.0}), "lacks the key 'low_freq_factor'"),
        (dict(num_key_value_heads=3), "multiple"),
        (dict(hidden_size=None), "hidden_size"),
    ],
)
def test_other_models_are_refused_by_name(changes, message):
    with pytest.raises(LessonError, match=message):
        parse_config({**LLAMA, **changes})


def test_defaults_of_the_families():
    qwen3 = parse_config({**LLAMA, "model_type": "qwen3", "num_attention_heads": 32})
    assert (qwen3.head_dim, qwen3.num_key_value_heads) == (128, 32)
    mistral = parse_config({**LLAMA, "model_type": "mistral", "sliding_window": None, "num_attention_heads": 32})
    assert mistral.num_key_value_heads == 8


def test_names_that_are_nothing():
    with pytest.raises(LessonError, match="Did you mean 'smollm2-135m'"):
        llmlesson.load("smolm2")
    with pytest.raises(LessonError, match=r"config\.json"):
        llmlesson.load(".")
    with pytest.raises(LessonError, match="Unknown dtype"):
        llmlesson.load(dtype="float64")
    with pytest.raises(LessonError, match="Unknown device"):
        llmlesson.load(device="gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_without_cuda():
    with pytest.raises(LessonError, match="no CUDA device"):
        llmlesson.load(device="cuda")


def test_a_folder_without_tokenizer_works_on_ids(folder, ids):
    engine = llmlesson.load(folder)
    engine.prefill(ids(4))
    with pytest.raises(LessonError, match=r"no tokenizer\.json"):
        engine.tokenizer.encode("text")


def test_a_hub_id_asks_the_hub_once_and_says_so(monkeypatch, tmp_path):
    # The loopback port 9 answers nobody: as good as no network, and quick.
    code = "import llmlesson; llmlesson.load('some-org/some-model')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "can't be reached" in result.stderr
    assert "LessonError" in result.stderr


def test_no_network_once_cached(real):
    code = """
import socket
def blocked(*args, **kwargs):
    raise OSError("the network was used")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = blocked
import llmlesson
print(llmlesson.load().generate("Hi", max_new_tokens=3).text)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_a_local_folder_called_like_a_hub_id_is_the_folder(folder, monkeypatch, tmp_path):
    nested = tmp_path / "org" / "name"
    nested.parent.mkdir()
    shutil.copytree(folder, nested, ignore=shutil.ignore_patterns("org"))
    monkeypatch.chdir(tmp_path)
    assert llmlesson.load("org/name").config.num_hidden_layers == 3
