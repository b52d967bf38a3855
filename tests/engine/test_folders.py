"""Folders that are no model, or not a whole one: each is refused by name, before anything is built."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from engine import tiny
from engine.test_tokenizer_families import CHATML, byte_level
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import llmlesson
from llmlesson import LessonError
from llmlesson.engine.chat_template import MAX_TEXT
from llmlesson.engine.checkpoint import nbytes_needed
from llmlesson.engine.quantized import QUANTIZED
from llmlesson.files.model_files import COUNTS, MAX_DEPTH, MAX_JSON, MAX_TOKENIZER, MB
from llmlesson.files.model_folder import INDEX, WHOLE
from llmlesson.sizing import kv_cache


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole tiny model with a tokenizer that knows its special tokens."""
    folder = tmp_path_factory.mktemp("whole")
    tiny.make("gqa", folder)
    tokenizer, names, _ = byte_level(bos=False)
    reference = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    reference.chat_template = CHATML
    reference.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def write(name, content):
    def change(folder):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(data)

    return change


def edit(name, **changes):
    def change(folder):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **changes}))

    return change


def cut(name):
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - 20)


def pipe(name):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def shards(weight_map):
    def change(folder):
        (folder / WHOLE).unlink()
        write(INDEX, {"weight_map": weight_map})(folder)

    return change


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
HTML = b"<!DOCTYPE html>\n<html><body>401 Unauthorized</body></html>"
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
# Wrong for `size` as for `load`.
CONFIGS = {
    "layers": (edit("config.json", num_hidden_layers=10**9), r"'num_hidden_layers' .* from 0 to 10,000.* 1000000000"),
    "huge": (edit("config.json", num_hidden_layers=10**400), "'num_hidden_layers' .*more than 30 digits"),
    "hidden": (edit("config.json", hidden_size=10**9), "'hidden_size' .* from 0 to 1,000,000"),
    "negative heads": (edit("config.json", num_attention_heads=-6), "'num_attention_heads' .* -6"),
    "no heads": (edit("config.json", num_attention_heads=0), "'num_attention_heads'"),
    "negative KV heads": (edit("config.json", num_key_value_heads=-2), "'num_key_value_heads' .* -2"),
    "half a head": (edit("config.json", num_attention_heads=5.5), "'num_attention_heads' .* 5.5"),
    "text": (edit("config.json", num_hidden_layers="16"), "'num_hidden_layers' .* '16'"),
    "true": (edit("config.json", num_key_value_heads=True), "'num_key_value_heads' .* True"),
    "NaN": (edit("config.json", head_dim=float("nan")), "'head_dim' .* nan"),
    "infinite": (edit("config.json", hidden_size=float("inf")), "'hidden_size' .* inf"),
    "object": (edit("config.json", hidden_size={"a": 1}), "'hidden_size' must be a whole number"),
    "list": (edit("config.json", rope_scaling=[1]), r"'rope_scaling' must be an object or null, not \[1\]"),
    "type": (edit("config.json", model_type=["llama"]), "'model_type' must be a name"),
    "no type": (edit("config.json", model_type=None), "odel.type"),
    "LFS": (write("config.json", LFS), r"config\.json is not valid JSON: it is a Git LFS pointer.*git lfs pull"),
    "HTML": (write("config.json", HTML), r"config\.json is not valid JSON: it is a web page"),
    "BOM": (lambda f: (f / "config.json").write_text((f / "config.json").read_text(), "utf-8-sig"), "byte order mark"),
    "UTF-16": (lambda f: (f / "config.json").write_text((f / "config.json").read_text(), "utf-16"), "it is UTF-16"),
    "empty": (write("config.json", b""), "it is empty"),
    "cut short": (cut("config.json"), r"config\.json is not valid JSON: it is cut off"),
    "an array": (write("config.json", [1]), "must hold a JSON object, not a list"),
    "deep": (write("config.json", DEEP), "nested more than 64 levels"),
    "less deep": (write("config.json", b'{"a":' * 99 + b"1" + b"}" * 99), "nested more than 64 levels"),
    "large": (lambda f: os.truncate(f / "config.json", 65_000_000), "65 MB; such files have at most 64 MB"),
    "a pipe": (pipe("config.json"), r"config\.json should be a file, but it is a pipe or a device"),
}
FOLDERS = {
    "a folder": (lambda f: ((f / "config.json").unlink(), (f / "config.json").mkdir()), "but it is a folder"),
    "vocabulary": (edit("config.json", vocab_size=10**7), r"embed_tokens.*\[131, 60\].*\[10000000, 60\]"),
    "wide": (edit("config.json", hidden_size=960_000), r"embed_tokens.*\[131, 60\].*\[131, 960000\]"),
    "context": (edit("config.json", max_position_embeddings="256"), "'max_position_embeddings'; it has '256'"),
    "epsilon": (edit("config.json", rms_norm_eps="x"), "positive number for 'rms_norm_eps'; it has 'x'"),
    "tied": (edit("config.json", tie_word_embeddings="no"), "true, false or null for 'tie_word_embeddings'"),
    "layer types": (edit("config.json", layer_types=7), "list or null for 'layer_types'"),
    "rope": (edit("config.json", rope_parameters={"rope_theta": None}), "positive number for 'rope_theta'"),
    "rope factor": (
        edit("config.json", rope_parameters={**tiny.LLAMA3_ROPE, "factor": 0}),
        "positive number for 'factor'; it has 0",
    ),
    "end": (edit("generation_config.json", eos_token_id="2"), r"generation_config\.json: 'eos_token_id'.*'2'"),
    "ends": (edit("generation_config.json", eos_token_id=[2, [3]]), "'eos_token_id' must be an id or a list of ids"),
    "end in config": (edit("config.json", eos_token_id={}), r"config\.json: 'eos_token_id'"),
    "generation": (write("generation_config.json", b"[]"), r"generation_config\.json must hold a JSON object"),
    "tokenizer LFS": (write("tokenizer.json", LFS), r"tokenizer\.json is not valid JSON: it is a Git LFS pointer"),
    "tokenizer cut": (cut("tokenizer.json"), r"tokenizer\.json is not valid JSON: it is cut off"),
    "tokenizer other": (write("tokenizer.json", {"model": 5}), r"tokenizer\.json is not a tokenizer"),
    "tokenizer model": (edit("tokenizer.json", model={"type": "BPE"}), r"tokenizer\.json is not a tokenizer"),
    "added tokens": (edit("tokenizer.json", added_tokens=[1]), r"tokenizer\.json"),
    "settings": (write("tokenizer_config.json", HTML), r"tokenizer_config\.json is not valid JSON: it is a web page"),
    "template": (write("chat_template.jinja", b"\xff\xfe\x00"), r"chat_template\.jinja is not text in UTF-8"),
    "weights LFS": (write(WHOLE, LFS), r"model\.safetensors can't be read: it is a Git LFS pointer"),
    "weights HTML": (write(WHOLE, HTML), r"model\.safetensors can't be read: it is a web page"),
    "weights pickle": (write(WHOLE, b"PK\x03\x04" + b"0" * 99), r"can't be read: it is a zip archive"),
    "weights empty": (write(WHOLE, b""), r"can't be read: it is empty"),
    "weights cut": (cut(WHOLE), r"model\.safetensors can't be read: it is cut short"),
    "quantized": (
        lambda f: save_file(
            {
                name: tensor.to(torch.int8) if "up_proj" in name else tensor
                for name, tensor in load_file(f / WHOLE).items()
            },
            f / WHOLE,
        ),
        "up_proj.weight' .* is stored as I8: this is a quantized or damaged checkpoint",
    ),
    "escape": (shards({"a": "../base/model.safetensors"}), r"names '\.\./base/model\.safetensors'.*Only files in it"),
    "absolute": (shards({"a": "/etc/passwd"}), "names '/etc/passwd'"),
    "Windows": (shards({"a": "..\\x.safetensors"}), r"names '\.\.\\\\x"),
    "drive": (shards({"a": "c:x.safetensors"}), "names 'c:x"),
    "numbers": (shards({"a": 5}), "names '', which is not a file"),
    "no map": (shards(None), "needs a table 'weight_map'"),
    "a list": (shards(["model.safetensors"]), "needs a table 'weight_map'"),
    "shard": (shards({"a": "x-1.safetensors", "b": "x-2.safetensors"}), r"lacks x-1\.safetensors, x-2\.safetensors"),
    "no index": (lambda f: (f / WHOLE).rename(f / "model-00001-of-00001.safetensors"), "which says what is in them"),
    "other name": (lambda f: (f / WHOLE).rename(f / "weights.safetensors"), r"It has weights\.safetensors: rename"),
    "other names": (
        lambda f: save_file({f"base.{name}": tensor for name, tensor in load_file(f / WHOLE).items()}, f / WHOLE),
        r"are not those of a llama model: they hold 'base\.lm_head\.weight', .*If this is an adapter, merge it",
    ),
    "no tensors": (lambda f: save_file({}, f / WHOLE), "they hold nothing"),
    "nothing": (lambda f: (f / WHOLE).unlink(), r"lacks model\.safetensors"),
    "bin": (lambda f: (f / WHOLE).rename(f / "pytorch_model.bin"), "only safetensors can be read"),
    "a pipe of weights": (pipe(WHOLE), r"lacks model\.safetensors"),
}


@pytest.mark.parametrize("case", [*CONFIGS, *FOLDERS])
def test_a_malformed_folder_is_refused_by_name(folder, case):
    if "pipe" in case and os.name == "nt":
        pytest.skip("Windows has no named pipes in folders")
    change, message = {**CONFIGS, **FOLDERS}[case]
    change(folder)
    with pytest.raises(LessonError, match=message):
        llmlesson.load(folder)
    if case in CONFIGS:
        for given in (folder, folder / "config.json"):
            with pytest.raises(LessonError, match=message):
                kv_cache(given, 10)


def lora(folder):
    (folder / "config.json").rename(folder / "adapter_config.json")
    write("adapter_config.json", {"base_model_name_or_path": "org/base"})(folder)


def cache_of_one(folder):
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "config.json").rename(folder / "snapshots" / "abc" / "config.json")


def cache_of_all(folder):
    (folder / "config.json").unlink()
    (folder / "models--org--name").mkdir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lora, r"holds a LoRA adapter for 'org/base'.*merge_and_unload"),
        (cache_of_one, r"is the hub's cache of 'model'.*Give the id 'model', or the folder of a snapshot: .*abc"),
        (cache_of_all, "is the hub's cache of 1 model. Give the id of one: org/name"),
        (lambda f: (f / "config.json").rename(f / "x.gguf"), "holds the GGUF file x.gguf(.|\n)*gguf_file='x.gguf'"),
        (lambda f: (f / "config.json").rename(f / "model_index.json"), "a pipeline of diffusers"),
        (lambda f: ((f / "sub").mkdir(), (f / "config.json").rename(f / "sub/config.json")), "There is one in it"),
        (lambda f: (f / "config.json").unlink(), r"has no config\.json: it is not a Hugging Face model folder"),
    ],
)
def test_another_kind_of_folder_is_named(folder, change, message):
    change(folder)
    for call in (llmlesson.load, lambda f: kv_cache(f, 10)):
        with pytest.raises(LessonError, match=message):
            call(folder)


def test_a_snapshot_that_is_not_whole_leads_to_the_id(whole, tmp_path):
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    shutil.copytree(whole, snapshot)
    (snapshot / WHOLE).unlink()
    way_out = "in the hub's cache: give the id 'org/name', which fetches what is missing"
    with pytest.raises(LessonError, match=rf"lacks model\.safetensors.*{way_out}"):
        llmlesson.load(snapshot)
    shards({"a": "x-1.safetensors"})(shutil.copytree(whole, snapshot.with_name("def")))
    with pytest.raises(LessonError, match=rf"lacks x-1\.safetensors.*{way_out}"):
        llmlesson.load(snapshot.with_name("def"))
    (snapshot / "config.json").unlink()
    for folder in (snapshot, snapshot.parent):
        with pytest.raises(LessonError, match=way_out):
            kv_cache(folder, 10)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (WHOLE, None, r"is one file of a model\. Give its folder"),
        ("x.gguf", b"GGUF\3\0\0\0", r"is a GGUF file\.(.|\n)*gguf_file='x\.gguf'"),
        ("pytorch_model.bin", b"\x80\x02", "is a pickle, which can run any code"),
        ("y.safetensors", LFS, "is a file: it is a Git LFS pointer"),
        ("z", b"text", "is a file. Give a folder"),
    ],
)
def test_a_file_in_place_of_a_folder_is_named(folder, name, content, message):
    if content is not None:
        (folder / name).write_bytes(content)
    for call in (llmlesson.load, lambda f: kv_cache(f, 10)):
        with pytest.raises(LessonError, match=message):
            call(folder / name)


@pytest.mark.parametrize("model", [None, 5, "", " ", "a\0b", "x" * 5000, "~nobody-of-that-name/x", [], {}])
def test_what_is_no_name_is_refused(model):
    for call in (llmlesson.load, lambda name: kv_cache(name, 10)):
        with pytest.raises(LessonError):
            call(model)


@pytest.mark.parametrize("closed", ["", "config.json", "tokenizer.json", WHOLE])
def test_what_may_not_be_read_is_named(folder, closed):
    (folder / closed).chmod(0)
    try:
        if os.access(folder / closed, os.R_OK):
            pytest.skip("root and Windows may read all the same")
        with pytest.raises(LessonError, match=f"{closed}.*Permission denied"):
            llmlesson.load(folder)
    finally:
        (folder / closed).chmod(0o755)


@pytest.mark.parametrize("stale", ["missing shards", "whole shards"])
def test_the_whole_file_counts_more_than_an_index(whole, tmp_path, stale, capsys, ids):
    tiny.make("gqa", tmp_path, shard_size="60KB")
    count = len(list(tmp_path.glob("model-*.safetensors")))
    shutil.copy(whole / WHOLE, tmp_path / WHOLE)
    if stale == "missing shards":
        for shard in tmp_path.glob("model-*.safetensors"):
            shard.unlink()
    prompt = ids(9)
    logits = llmlesson.load(tmp_path).logits(prompt)
    torch.testing.assert_close(logits, llmlesson.load(whole).logits(prompt))
    gone = count if stale == "missing shards" else "none"
    said = capsys.readouterr().err
    assert f"an index of {count} shards, {gone} of which are missing. model.safetensors is used" in said
    assert AutoModelForCausalLM.from_pretrained(tmp_path)  # transformers takes the whole file too


def test_a_head_of_its_own_counts_more_than_the_config(tmp_path, capsys, ids):
    tiny.make("gqa", tmp_path)
    edit("config.json", tie_word_embeddings=True)(tmp_path)
    prompt = ids(9)
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(tmp_path)(torch.tensor([prompt])).logits[0]
    torch.testing.assert_close(llmlesson.load(tmp_path).logits(prompt), expected, rtol=1e-4, atol=1e-4)
    assert "an lm_head with different values" in capsys.readouterr().err


def test_a_tied_model_that_stores_the_copy_is_tied_without_a_word(tmp_path, capsys):
    tiny.make("tied", tmp_path)
    tensors = load_file(tmp_path / WHOLE)
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, tmp_path / WHOLE)
    capsys.readouterr()
    model = llmlesson.load(tmp_path).model
    assert model.embedding.data_ptr() == model.head.data_ptr()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_a_wrappers_prefix_is_left_out(whole, folder, prefix, capsys, ids):
    save_file({prefix + name: tensor for name, tensor in load_file(folder / WHOLE).items()}, folder / WHOLE)
    prompt = ids(9)
    torch.testing.assert_close(llmlesson.load(folder).logits(prompt), llmlesson.load(whole).logits(prompt))
    assert f"the names of all tensors begin with {prefix!r}; we ignore that prefix" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("gqa", "float32"), ("tied", "bfloat16"), *itertools.product(("gqa", "tied", "qwen3"), QUANTIZED)],
)
def test_the_memory_that_a_message_names_is_what_the_weights_take(tmp_path, name, dtype):
    tiny.make(name, tmp_path)
    model = llmlesson.load(tmp_path, dtype=dtype).model
    tensors = [*model.layers[0].__dict__.values(), model.head, model.norm]
    for layer in model.layers[1:]:
        tensors += layer.__dict__.values()
    taken = 0
    for part in tensors:
        taken += getattr(part, "nbytes", 0)
    if not (isinstance(model.head, torch.Tensor) and model.embedding.data_ptr() == model.head.data_ptr()):
        taken += model.embedding.nbytes
    quantized = dtype if dtype in QUANTIZED else None
    assert nbytes_needed(model.config, name == "tied", model.norm.dtype, quantized) == taken


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=5), st.just({}),
    st.lists(st.integers(-3, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_any_value_anywhere_gives_a_model_or_a_lesson_error(whole, tmp_path_factory, data):
    name = data.draw(
        st.sampled_from(["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
    )
    content = json.loads((whole / name).read_text())
    changed = copy.deepcopy(content)
    at = changed
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not (isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans())):
            break
        at = at[key]
    at[key] = data.draw(ODD)
    folder = tmp_path_factory.mktemp("odd")
    for file in whole.iterdir():
        (folder / file.name).hardlink_to(file)
    (folder / name).unlink()
    (folder / name).write_text(json.dumps(changed))
    for call in (load_and_chat, lambda f: kv_cache(f, 10)):
        try:
            call(folder)
        except LessonError as error:
            assert len(str(error)) < 3000  # noqa: PT017
    shutil.rmtree(folder)


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_any_bytes_anywhere_give_a_model_or_a_lesson_error(whole, tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(file.name for file in whole.iterdir())))
    content = bytearray((whole / name).read_bytes())
    at = data.draw(st.integers(0, min(len(content), 3000) - 1))
    some = data.draw(st.binary(max_size=9))
    content[at : at + data.draw(st.integers(0, 9))] = some
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    folder = tmp_path_factory.mktemp("odd")
    for file in whole.iterdir():
        (folder / file.name).hardlink_to(file)
    (folder / name).unlink()
    (folder / name).write_bytes(content)
    for call in (load_and_chat, lambda f: kv_cache(f, 10)):
        with contextlib.suppress(LessonError):
            call(folder)
    shutil.rmtree(folder)


def test_the_page_on_trust_names_the_limits():
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text("utf-8")
    for limit in (
        f"{COUNTS['num_hidden_layers']:,} layers",
        f"{COUNTS['num_attention_heads']:,} heads",
        f"hidden size of {COUNTS['hidden_size']:,}",
        f"{COUNTS['vocab_size']:,}",
        f"{MAX_JSON // MB} MB (`tokenizer.json` {MAX_TOKENIZER // MB} MB) and {MAX_DEPTH} levels",
        f"{MAX_TEXT // MB} million characters",
    ):
        assert limit in page


def load_and_chat(folder):
    engine = llmlesson.load(folder)
    engine.logits([1, 2, 3])
    engine.tokenizer.chat("Hello")
