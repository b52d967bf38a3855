"""Reads a Hugging Face folder: `config.json`, and `model.safetensors` or its shards."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llmlesson.engine.config import ModelConfig
from llmlesson.engine.int8 import Int8Matrix
from llmlesson.engine.memory import explained_out_of_memory
from llmlesson.engine.model import Layer, Model
from llmlesson.engine.product import Matrix
from llmlesson.errors import LessonError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or {} where there is no such file."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LessonError(f"{path} is not valid JSON ({error}). Get the file again.") from None
    if not isinstance(content, dict):
        raise LessonError(f"{path} should hold a JSON object. Get the file again.")
    return content


SMALLER = 'Load it with a smaller dtype ("bfloat16"; "int8" on a CPU), close other programs, or take a smaller model.'


class _Tensors:
    """The named tensors of a folder, one at a time, each checked for its shape and ticked off."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._file_of: dict[str, Any] = {}
        for path in self._files():
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise LessonError(f"{path} can't be read ({error}). Get the file again.") from None
            self._file_of.update(dict.fromkeys(file.keys(), file))
        self.unread = set(self._file_of)

    def _files(self) -> list[Path]:
        index = self.folder / "model.safetensors.index.json"
        if index.exists():
            names = sorted(set(read_json(index).get("weight_map", {}).values()))
        else:
            names = ["model.safetensors"]
        missing = [name for name in names if not (self.folder / name).is_file()]
        if missing or not names:
            others = sorted(path.name for path in self.folder.glob("*.bin"))
            hint = f" It has {', '.join(others)}, but only safetensors can be read." if others else ""
            raise LessonError(f"{self.folder} lacks {', '.join(missing) or 'its weights'}.{hint}")
        return [self.folder / name for name in names]

    @property
    def count(self) -> int:
        """Values in all tensors together."""
        return sum(math.prod(file.get_slice(name).get_shape()) for name, file in self._file_of.items())

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        if name not in self._file_of:
            raise LessonError(f"The weights in {self.folder} lack the tensor {name!r} {list(shape)}.")
        tensor: Tensor = self._file_of[name].get_tensor(name)
        if list(tensor.shape) != list(shape):
            raise LessonError(
                f"The tensor {name!r} in {self.folder} has the shape {list(tensor.shape)}; "
                f"by its config.json it should have {list(shape)}."
            )
        self.unread.discard(name)
        return tensor


def load_model(folder: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype, int8: bool) -> Model:
    """The weights of a folder, laid out for the forward pass; with `int8`, matrices quantized from `dtype`.

    Tensors are read, converted and transposed one at a time, so that the peak stays near the size of the result.
    Raises LessonError that names what is missing, unexpected or of the wrong shape.
    """
    c = config
    q_size, kv_size = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim

    def matrix(names: Sequence[str], in_size: int, out_sizes: Sequence[int]) -> Matrix:
        joined = plain_matrix(names, in_size, out_sizes)
        return Int8Matrix(joined) if int8 else joined

    def plain_matrix(names: Sequence[str], in_size: int, out_sizes: Sequence[int]) -> Tensor:
        """Checkpoint matrices [out, in] side by side as one [in, sum of outs]."""
        joined = torch.empty(in_size, sum(out_sizes), dtype=dtype, device=device)
        for name, part in zip(names, joined.split(list(out_sizes), dim=1), strict=True):
            part.copy_(tensors.read(name, (part.shape[1], in_size)).to(device).to(dtype).T)
        return joined

    def vector(names: Sequence[str], sizes: Sequence[int]) -> Tensor:
        parts = [tensors.read(name, (size,)) for name, size in zip(names, sizes, strict=True)]
        return torch.cat(parts).to(device, dtype)

    def head_norms(at: str) -> Tensor:
        """The norm of query heads and that of key heads, repeated for all heads: [Hq + Hkv, 1, D]."""
        q, k = (vector([f"{at}.{name}_norm.weight"], [c.head_dim]) for name in "qk")
        return torch.cat((q.expand(c.num_attention_heads, 1, -1), k.expand(c.num_key_value_heads, 1, -1)))

    def layer(index: int) -> Layer:
        at, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
        projections, sizes = [f"{at}.{x}_proj" for x in "qkv"], (q_size, kv_size, kv_size)
        return Layer(
            attention_norm=vector([f"model.layers.{index}.input_layernorm.weight"], [c.hidden_size]),
            qkv=matrix([f"{p}.weight" for p in projections], c.hidden_size, sizes),
            qkv_bias=vector([f"{p}.bias" for p in projections], sizes) if c.qkv_bias else None,
            qk_norm=head_norms(at) if c.qk_norm else None,
            out=matrix([f"{at}.o_proj.weight"], q_size, [c.hidden_size]),
            mlp_norm=vector([f"model.layers.{index}.post_attention_layernorm.weight"], [c.hidden_size]),
            gate_up=matrix(
                [f"{mlp}.{x}_proj.weight" for x in ("gate", "up")], c.hidden_size, [c.intermediate_size] * 2
            ),
            down=matrix([f"{mlp}.down_proj.weight"], c.intermediate_size, [c.hidden_size]),
            uses_rope=c.rope_layers[index],
        )

    with ExitStack() as stack:
        tensors = _Tensors(folder, stack)
        stack.enter_context(explained_out_of_memory(str(folder), tensors.count * dtype.itemsize, device, SMALLER))
        embedding_name, head_name = "model.embed_tokens.weight", "lm_head.weight"
        tied = c.tie_word_embeddings if c.tie_word_embeddings is not None else head_name not in tensors
        head = matrix([embedding_name if tied else head_name], c.hidden_size, [c.vocab_size])
        if tied and isinstance(head, Tensor):
            embedding = head.T
        else:
            stored = tensors.read(embedding_name, (c.vocab_size, c.hidden_size)).to(device)
            embedding = stored.to(torch.bfloat16 if int8 else dtype)
        if tied:
            tensors.unread.discard(head_name)  # some tied checkpoints store the copy
        model = Model(
            config=c,
            embedding=embedding,
            layers=[layer(index) for index in range(c.num_hidden_layers)],
            norm=vector(["model.norm.weight"], [c.hidden_size]),
            head=head,
        )
        # Old Llama checkpoints store the rotary frequencies, which follow from the config.
        unexpected = sorted(name for name in tensors.unread if not name.endswith("rotary_emb.inv_freq"))
    if unexpected:
        shown = ", ".join(unexpected[:5]) + (" …" if len(unexpected) > 5 else "")
        raise LessonError(
            f"The weights in {folder} hold {len(unexpected)} tensors that a {c.model_type} model does not have: {shown}"
        )
    return model
