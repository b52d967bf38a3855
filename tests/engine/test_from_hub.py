"""Models by their hub id: what is cached is enough, what is missing is fetched, and why it can't be is said."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys

import pytest
from engine import tiny
from engine.test_tokenizer_families import CHATML, byte_level
from files.fake_hub import SHA, FakeHub
from transformers import PreTrainedTokenizerFast

import llmlesson
from llmlesson import LessonError
from llmlesson.sizing import kv_cache


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """What the hub has: a model in two shards or more, with a tokenizer."""
    folder = tmp_path_factory.mktemp("published")
    tiny.make("gqa", folder, shard_size="60KB")
    tokenizer, names, _ = byte_level(bos=False)
    reference = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    reference.chat_template = CHATML
    reference.save_pretrained(folder)
    return folder


@pytest.fixture
def hub(published, tmp_path, monkeypatch):
    from huggingface_hub import constants

    hub = FakeHub(shutil.copytree(published, tmp_path / "published"))
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield hub
    hub.close()


def snapshot(hub):
    return hub.folder.parent / "cache" / "models--org--name" / "snapshots" / SHA


def lose(hub, name, knows_the_list):
    """Take a file out of the cache; without the list of files that newer libraries keep, nobody notices by itself."""
    (snapshot(hub) / name).resolve().unlink()
    (snapshot(hub) / name).unlink()
    if not knows_the_list:
        shutil.rmtree(snapshot(hub).parents[1] / "trees", ignore_errors=True)


def test_size_fetches_the_config_and_load_the_rest(hub):
    size = kv_cache("org/name", 10)
    assert [file.name for file in snapshot(hub).iterdir()] == ["config.json"]
    engine = llmlesson.load("org/name")
    assert engine.tokenizer.chat("Hello")
    assert engine.new_cache(10).allocated_nbytes == 2 * size.nbytes  # float32 in place of bf16
    hub.asked.clear()
    llmlesson.load("org/name")
    kv_cache("org/name", 10)
    assert hub.asked == []


PARTS = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json", "model-00002"]


@pytest.mark.parametrize(("part", "knows_the_list"), [(PARTS[1], True), *((part, False) for part in PARTS)])
def test_a_partial_snapshot_is_completed(hub, part, knows_the_list):
    llmlesson.load("org/name")
    [name] = [file.name for file in snapshot(hub).iterdir() if file.name.startswith(part)]
    lose(hub, name, knows_the_list)
    assert llmlesson.load("org/name").tokenizer.chat("Hello")
    assert (snapshot(hub) / name).is_file()


@pytest.mark.parametrize("part", PARTS)
def test_a_partial_snapshot_is_named_where_the_hub_cannot_be_asked(hub, part, capsys):
    llmlesson.load("org/name")
    [name] = [file.name for file in snapshot(hub).iterdir() if file.name.startswith(part)]
    lose(hub, name, knows_the_list=False)
    hub.close()
    message = rf"Only a part of 'org/name' is in the hub's cache: .*{part}.* missing.*can't be reached.*connect to the"
    if part.startswith("tokenizer"):  # enough for lists of ids
        engine = llmlesson.load("org/name")
        engine.prefill([3, 4])
        assert f"{part} is missing" in capsys.readouterr().err
        if part == "tokenizer.json":
            with pytest.raises(LessonError, match=message):
                engine.tokenizer.encode("Hello")
    else:
        with pytest.raises(LessonError, match=message):
            llmlesson.load("org/name")


def test_a_file_that_the_hub_does_not_have_is_asked_for_once(hub):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (hub.folder / name).unlink()
    llmlesson.load("org/name").prefill([3, 4])
    shutil.rmtree(snapshot(hub).parents[1] / "trees", ignore_errors=True)
    hub.asked.clear()
    llmlesson.load("org/name").prefill([3, 4])
    assert hub.asked == []


REFUSALS = [
    ((403, "GatedRepo"), "'org/name' is gated.*Accept its terms at http.*/org/name, and log in with:  hf auth login"),
    ((401, "RepoNotFound"), "has no model 'org/name', or shows it only to its owners.*hf auth login"),
    ((404, "RepoNotFound"), "has no model 'org/name'"),
    ((503, ""), "answered 503 for 'org/name'.*Try again later"),
]


@pytest.mark.parametrize("call", [llmlesson.load, lambda name: kv_cache(name, 10)], ids=["load", "size"])
@pytest.mark.parametrize(("refusal", "message"), REFUSALS)
@pytest.mark.parametrize("refuses_files", [True, False])
def test_load_and_size_say_alike_why_the_hub_refuses(hub, call, refusal, message, refuses_files, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the library tries again after a 503
    hub.refuses, hub.refuses_files = refusal, refuses_files
    with pytest.raises(LessonError, match=message):
        call("org/name")


def test_a_repository_without_a_config_is_no_model(hub):
    (hub.folder / "config.json").unlink()
    for call in (llmlesson.load, lambda name: kv_cache(name, 10)):
        with pytest.raises(LessonError, match=r"no such file on the hub|has no config\.json"):
            call("org/name")


@pytest.mark.parametrize("name", ["org/na me", "-a/b", "a/b..c", "org/"])
def test_what_is_no_hub_id_is_said(hub, name):
    for call in (llmlesson.load, lambda name: kv_cache(name, 10)):
        with pytest.raises(LessonError, match=r"no valid model id|no model or folder|No model is called"):
            call(name)


CODE = """
from pathlib import Path
from llmlesson.errors import LessonError
from llmlesson.files import hub
for call in (hub.config_file, lambda name: hub.snapshot(name, lambda folder: [])):
    try:
        call("org/name")
    except LessonError as error:
        print(error)
        print("--")
"""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ALL_PROXY": "socks5://127.0.0.1:9", "HTTPS_PROXY": ""}, "pip install socksio"),
        ({"HTTPS_PROXY": "http://a:b:c"}, "The hub can't be asked with your proxy settings"),
        ({"HTTPS_PROXY": "http://127.0.0.1:9"}, "which your settings send through a proxy, can't be reached"),
        ({"HF_ENDPOINT": "huggingface.co"}, "HF_ENDPOINT is 'huggingface.co': it must begin with http"),
        ({"SSL_CERT_FILE": "/nowhere.pem"}, "SSL_CERT_FILE names /nowhere.pem, which does not exist"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "hub (127.0.0.1:9) can't be reached"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_that_keep_the_hub_away_are_named(tmp_path, settings, message):
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env = {**clean, "HF_HOME": str(tmp_path), **settings}
    result = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=60)
    said = result.stdout.split("--\n")
    assert len(said) == 3, result.stderr
    assert all(message in one for one in said[:2]), said
    assert "Traceback" not in result.stderr


def test_a_certificate_that_is_not_accepted_is_said(hub, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    hub.server.socket = tls.wrap_socket(hub.server.socket, server_side=True)
    env = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.address.replace("http:", "https:")}
    result = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=60)
    assert result.stdout.count("is not accepted. Check this machine's clock.") == 2, result
