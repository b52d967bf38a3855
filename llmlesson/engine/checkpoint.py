"""Reads the weights of a Hugging Face folder from `model.safetensors` or its shards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from llmlesson.engine.config import ModelConfig
from llmlesson.engine.memory import explained_out_of_memory
from llmlesson.engine.model import Layer, Model, matrix_sizes, vector_values
from llmlesson.engine.quantized import Matrix, nbytes_of, stored
from llmlesson.errors import LessonError
from llmlesson.files.model_files import what_is

SMALLER = (
    'Load it with a smaller dtype ("bfloat16"; on a CPU also "int8" and "int4"), close other programs, or take a '
    "smaller model."
)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# What torch's DistributedDataParallel and torch.compile put before every name.
WRAPPERS = ("module.", "_orig_mod.")
FLOATS = ("F64", "F32", "F16", "BF16")

Shape = tuple[int, ...]


class _Tensors:
    """The tensors in some files, by name, one at a time. Only the files' headers are read before `read`."""

    def __init__(self, files: Sequence[Path], stack: ExitStack) -> None:
        self.folder = files[0].parent
        self._file_of: dict[str, Any] = {}
        for path in files:
            try:
                path.open("rb").close()  # safetensors would report an unreadable file as missing
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise LessonError(f"{path} can't be read: {what_is(path) or _fault(error)}") from None
            self._file_of.update(dict.fromkeys(file.keys(), file))
        self.wrapper = ""
        while found := next((w for w in WRAPPERS if self._all_begin(self.wrapper + w)), None):
            self.wrapper += found
        self.names = {name.removeprefix(self.wrapper) for name in self._file_of}

    def _all_begin(self, prefix: str) -> bool:
        return bool(self._file_of) and all(name.startswith(prefix) for name in self._file_of)

    def require(self, expected: dict[str, Shape], model_type: str) -> None:
        """Raise LessonError that names a tensor that is missing, unexpected, or of the wrong shape or kind."""
        if not self.names & expected.keys():
            shown = ", ".join(repr(name) for name in sorted(self.names)[:3]) or "nothing"
            raise LessonError(
                f"The weights in {self.folder} are not those of a {model_type} model: they hold {shown} … "
                "If this is an adapter, merge it into its model first. If another program wrote it, convert it to "
                "the format of transformers."
            )
        for name, shape in expected.items():
            if name not in self.names:
                raise LessonError(f"The weights in {self.folder} lack the tensor {name!r} {list(shape)}.")
            stored = self._file_of[self.wrapper + name].get_slice(self.wrapper + name)
            if stored.get_shape() != list(shape):
                raise LessonError(
                    f"The tensor {name!r} in {self.folder} has the shape {stored.get_shape()}; "
                    f"according to its config.json it should be {list(shape)}."
                )
            if stored.get_dtype() not in FLOATS:
                raise LessonError(
                    f"The tensor {name!r} in {self.folder} is stored as {stored.get_dtype()}: this is a quantized or "
                    "damaged checkpoint. Only fp32, fp16 and bf16 can be read."
                )
        # Old Llama checkpoints store the rotary frequencies, which we compute from the config.
        unread = self.names - expected.keys()
        if unexpected := sorted(name for name in unread if not name.endswith("rotary_emb.inv_freq")):
            shown = ", ".join(repr(name) for name in unexpected[:5]) + (" …" if len(unexpected) > 5 else "")
            raise LessonError(
                f"The weights in {self.folder} hold {len(unexpected)} tensors that a {model_type} model does not "
                f"have: {shown}"
            )

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file_of[self.wrapper + name].get_tensor(self.wrapper + name)
        return tensor


def _fault(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"{error.strerror}."
    if "incomplete" in str(error).lower() or "too small" in str(error).lower():
        return f"it is cut short or damaged ({error}). Get the file again."
    return f"{error}. Get the file again."


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """The shape, [out, in] or [size], of every tensor in a checkpoint of this config by name, `lm_head` included."""
    c = config
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    shapes: dict[str, Shape] = {EMBEDDING: (c.vocab_size, c.hidden_size)}
    for index in range(c.num_hidden_layers):
        at = f"model.layers.{index}"
        shapes[f"{at}.input_layernorm.weight"] = (c.hidden_size,)
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (size, c.hidden_size)
            if c.qkv_bias:
                shapes[f"{at}.self_attn.{name}_proj.bias"] = (size,)
        if c.qk_norm:
            shapes.update({f"{at}.self_attn.{name}_norm.weight": (c.head_dim,) for name in "qk"})
        shapes[f"{at}.self_attn.o_proj.weight"] = (c.hidden_size, q)
        shapes[f"{at}.post_attention_layernorm.weight"] = (c.hidden_size,)
        shapes.update({f"{at}.mlp.{name}_proj.weight": (c.intermediate_size, c.hidden_size) for name in ("gate", "up")})
        shapes[f"{at}.mlp.down_proj.weight"] = (c.hidden_size, c.intermediate_size)
    return {**shapes, "model.norm.weight": (c.hidden_size,), HEAD: (c.vocab_size, c.hidden_size)}


def nbytes_needed(config: ModelConfig, tied: bool, dtype: torch.dtype, quantized: str | None) -> int:
    """Bytes that the loaded weights take. A tied embedding is a view of the head, unless the head is quantized; then
    its rows are kept in bfloat16, to be looked up."""
    layer = sum(nbytes_of(*size, dtype, quantized) for size in matrix_sizes(config))
    layer += vector_values(config) * dtype.itemsize
    head = nbytes_of(config.hidden_size, config.vocab_size, dtype, quantized, head=True)
    looked_up = config.vocab_size * config.hidden_size * (2 if quantized else 0 if tied else dtype.itemsize)
    return config.num_hidden_layers * layer + head + config.hidden_size * dtype.itemsize + looked_up


def load_model(
    files: Sequence[Path], config: ModelConfig, device: torch.device, dtype: torch.dtype, quantized: str | None
) -> tuple[Model, list[str]]:
    """(The weights from these files, laid out for the forward pass; notes for the user about them).

    With `quantized` ("int8", "int4"), matrices are quantized from `dtype`. Tensors are read, converted and transposed
    one at a time, so that peak memory stays near the size of the result. Before anything is built, raises a
    LessonError that names what is missing, unexpected or of the wrong shape.
    """
    c = config
    q_size, kv_size = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim

    def matrix(names: Sequence[str], in_size: int, out_sizes: Sequence[int], head: bool = False) -> Matrix:
        """Checkpoint matrices [out, in] side by side as one [in, sum of outs]."""
        joined = torch.empty(in_size, sum(out_sizes), dtype=dtype, device=device)
        for name, part in zip(names, joined.split(list(out_sizes), dim=1), strict=True):
            part.copy_(tensors.read(name).to(device).T)
        return stored(joined, quantized, head)

    def vector(*names: str) -> Tensor:
        return torch.cat([tensors.read(name) for name in names]).to(device, dtype)

    def head_norms(at: str) -> Tensor:
        """The norms of query heads and key heads, repeated for all heads: [Hq + Hkv, 1, D]."""
        q, k = (vector(f"{at}.{name}_norm.weight") for name in "qk")
        return torch.cat((q.expand(c.num_attention_heads, 1, -1), k.expand(c.num_key_value_heads, 1, -1)))

    def layer(index: int) -> Layer:
        at, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
        projections, sizes = [f"{at}.{x}_proj" for x in "qkv"], (q_size, kv_size, kv_size)
        return Layer(
            attention_norm=vector(f"model.layers.{index}.input_layernorm.weight"),
            qkv=matrix([f"{p}.weight" for p in projections], c.hidden_size, sizes),
            qkv_bias=vector(*(f"{p}.bias" for p in projections)) if c.qkv_bias else None,
            qk_norm=head_norms(at) if c.qk_norm else None,
            out=matrix([f"{at}.o_proj.weight"], q_size, [c.hidden_size]),
            mlp_norm=vector(f"model.layers.{index}.post_attention_layernorm.weight"),
            gate_up=matrix(
                [f"{mlp}.{x}_proj.weight" for x in ("gate", "up")], c.hidden_size, [c.intermediate_size] * 2
            ),
            down=matrix([f"{mlp}.down_proj.weight"], c.intermediate_size, [c.hidden_size]),
            uses_rope=c.rope_layers[index],
        )

    with ExitStack() as stack:
        tensors = _Tensors(files, stack)
        shapes = expected_tensors(c)
        stored_head = HEAD in tensors.names
        says_tied = c.tie_word_embeddings if c.tie_word_embeddings is not None else not stored_head
        if says_tied and not stored_head:
            shapes.pop(HEAD)
        tensors.require(shapes, c.model_type)
        # As in transformers 5: a stored lm_head with values of its own overrides the config.
        tied = says_tied and not (stored_head and not torch.equal(tensors.read(HEAD), tensors.read(EMBEDDING)))
        notes = []
        if says_tied and not tied:
            notes.append(
                f"{tensors.folder}: config.json ties lm_head to the embedding, but the weights hold an lm_head with "
                "different values. We use that lm_head, as transformers does."
            )
        if tensors.wrapper:
            notes.append(
                f"{tensors.folder}: the names of all tensors begin with {tensors.wrapper!r}; we ignore that prefix."
            )
        needed = nbytes_needed(c, tied, dtype, quantized)
        stack.enter_context(explained_out_of_memory(str(tensors.folder), needed, device, SMALLER))
        head = matrix([EMBEDDING if tied else HEAD], c.hidden_size, [c.vocab_size], head=True)
        if tied and isinstance(head, Tensor):
            embedding = head.T
        else:
            embedding = tensors.read(EMBEDDING).to(device).to(torch.bfloat16 if quantized else dtype)
        model = Model(
            config=c,
            embedding=embedding,
            layers=[layer(index) for index in range(c.num_hidden_layers)],
            norm=vector("model.norm.weight"),
            head=head,
            quantized=quantized,
        )
    return model, notes
