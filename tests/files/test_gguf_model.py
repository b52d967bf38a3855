from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_model
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from llmlesson.files.fetch import ensure_default_model
from llmlesson.files.gguf_model import convert

VECTORS = Path(__file__).parents[1] / "data" / "tokenizer_vectors.json"


@pytest.fixture(scope="module")
def folder(tiny_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("converted")
    convert(tiny_files[0], target)
    return target


def test_weights_come_back_in_hugging_face_names_and_order(folder: Path) -> None:
    stored, expected = load_file(folder / "model.safetensors"), tiny_model.hf_weights()
    assert stored.keys() == expected.keys()  # so the tied head is not there a second time
    for name, weight in expected.items():
        assert stored[name].dtype == np.float16
        np.testing.assert_array_equal(stored[name], weight, err_msg=name)


def test_transformers_loads_the_folder(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    config = model.config
    assert type(config).__name__ == "LlamaConfig"
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (6, 2, 16)
    assert (config.rope_parameters["rope_theta"], config.rms_norm_eps) == (100000.0, 1e-5)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.generation_config.eos_token_id == 2

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False)
    assert chat == "<|im_start|>user\nab<|im_end|>\n"
    # Digits are split off first, although the vocabulary has a merge for "12".
    assert tokenizer.tokenize("12 ab") == ["1", "2", "Ġa", "b"]


def test_control_tokens_are_special(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.decode([2]) == ""
    tokenizer.encode_special_tokens = True
    assert len(tokenizer.encode("<|im_end|>").ids) == len("<|im_end|>")


def test_weights_are_as_readable_as_the_rest(folder: Path) -> None:
    assert {path.stat().st_mode for path in folder.iterdir()} == {(folder / "config.json").stat().st_mode}


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    tiny_model.write_gguf(tmp_path / "other.gguf", pre_tokenizer="llama-bpe")
    with pytest.raises(ValueError, match="llama-bpe"):
        convert(tmp_path / "other.gguf", tmp_path)


def test_conversion_needs_no_torch() -> None:
    code = "import sys, llmlesson.files.gguf_model; print({'torch', 'transformers', 'accelerate'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


# The real model from here on.


@pytest.mark.parametrize("through", ["tokenizers", "transformers"])
def test_default_model_has_the_ids_it_was_trained_on(through: str) -> None:
    folder = ensure_default_model()
    if through == "tokenizers":
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        encode = lambda text: tokenizer.encode(text).ids  # noqa: E731
    else:
        from transformers import AutoTokenizer

        encode = AutoTokenizer.from_pretrained(folder).encode
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    assert len(vectors) == 53
    assert [encode(v["text"]) for v in vectors] == [v["ids"] for v in vectors]


def test_default_model_answers_through_transformers() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = ensure_default_model()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    message = [{"role": "user", "content": "Explain quantum computing like I'm ten."}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    assert ids["input_ids"].shape == (1, 38)
    output = model.generate(**ids, max_new_tokens=16, do_sample=False)[0, 38:]
    assert tokenizer.decode(output).startswith(
        "In the realm of computing, I'm a quantum computing assistant designed to"
    )
