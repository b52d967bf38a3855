"""How engines round: for the same model and tokens, each one allocates a different number of bytes.

Every convention answers two questions: how many cells (token slots) an attention layer gets for one sequence, and how
many bytes a fixed state takes. Each names its rule, and its source with the version that we read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llmlesson.errors import LessonError
from llmlesson.sizing.specs import Attention, State

VLLM_BLOCK = 16  # vllm/config/cache.py: DEFAULT_BLOCK_SIZE on CUDA
VLLM_BATCHED_TOKENS = 2048  # vllm/config/scheduler.py: DEFAULT_MAX_NUM_BATCHED_TOKENS
LLAMA_PAD = 256  # llama.cpp pads every sequence's context to it
LLAMA_UBATCH = 512  # llama.cpp's default --ubatch-size


@dataclass(frozen=True)
class Convention:
    """`cells(attention, tokens)` for one sequence, and how states are stored."""

    name: str
    rule: str
    source: str
    cells: Callable[[Attention, int], int]
    fp32_states: bool | None = None  # None: as the layer says; True: all fp32; False: all in the model's dtype
    drop_conv_column: bool = False  # the oldest column of a convolution state is never read again

    def state_values(self, state: State) -> int:
        """How many values the state holds under this convention."""
        if not (state.conv and self.drop_conv_column):
            return state.size
        return state.size // state.shape[-1] * (state.shape[-1] - 1)

    def state_value_nbytes(self, state: State, model_nbytes: int) -> int:
        """Bytes of one value of the state, if the model computes with `model_nbytes` per value."""
        fp32 = state.dtype == "fp32" if self.fp32_states is None else self.fp32_states
        return 4 if fp32 else model_nbytes


def round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _ideal(attention: Attention, tokens: int) -> int:
    return tokens if attention.window is None else min(tokens, attention.window)


def _hf_dynamic(attention: Attention, tokens: int) -> int:
    # A slice [-window + 1:] keeps window - 1 tokens: with the new token's own, the next step sees `window`.
    # In a window of 1 that slice is [0:], and keeps everything.
    if attention.window is None or attention.window == 1:
        return tokens
    return min(tokens, attention.window - 1)


def _vllm(attention: Attention, tokens: int) -> int:
    if attention.window is None:
        return round_up(tokens, VLLM_BLOCK)
    if attention.chunked:
        return round_up(min(tokens, attention.window + VLLM_BATCHED_TOKENS), VLLM_BLOCK)
    kept = min(tokens, attention.window - 1 + VLLM_BATCHED_TOKENS)
    return round_up(kept, VLLM_BLOCK) + VLLM_BLOCK


def _llama_cpp(attention: Attention, tokens: int) -> int:
    padded = round_up(tokens, LLAMA_PAD)
    if attention.window is None:
        return padded
    return round_up(min(padded, attention.window + LLAMA_UBATCH), LLAMA_PAD)


_CONVENTIONS = {
    c.name: c
    for c in (
        Convention(
            "ideal",
            "One cell a token; a window keeps its last `window` tokens, the current one among them; states as the "
            "reference implementation shapes them. What the architecture needs, without any engine's rounding.",
            "The definition; state shapes from transformers 5.24.",
            _ideal,
        ),
        Convention(
            "hf_dynamic",
            "transformers' DynamicCache: one cell per token; a sliding or chunked layer keeps window − 1 tokens "
            "between forward passes; conv states keep `kernel` columns, recurrent states are fp32.",
            "transformers 5.24, cache_utils.py: DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer.",
            _hf_dynamic,
        ),
        Convention(
            "hf_static",
            "transformers' StaticCache with max_cache_len = tokens, allocated all at once; a sliding or chunked "
            "layer gets min(tokens, window).",
            "transformers 5.24, cache_utils.py: StaticLayer, StaticSlidingWindowLayer.",
            _ideal,
        ),
        Convention(
            "vllm",
            f"Blocks of {VLLM_BLOCK} tokens. A sliding layer gets min(tokens, window − 1 + {VLLM_BATCHED_TOKENS:,} "
            "batched tokens) and one extra block, because a window may begin inside a block; a chunked layer gets "
            "min(tokens, chunk + batched tokens). States in the model's dtype, conv states without their oldest "
            "column. Not counted: the padding of layer groups and of pages in mixed models.",
            "vLLM, v1/kv_cache_interface.py (FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec, "
            "MambaSpec) at 001cabc; mamba_utils.py at 02d7108; config/scheduler.py at 01230b4.",
            _vllm,
            fp32_states=False,
            drop_conv_column=True,
        ),
        Convention(
            "llama_cpp",
            f"One stream per sequence, its context padded to {LLAMA_PAD} cells. A windowed layer gets window + "
            f"{LLAMA_UBATCH} (the micro-batch), padded to {LLAMA_PAD}, and never more than the context. MLA keeps K "
            "alone (V is a view of it). States are fp32, conv states without their oldest column.",
            "llama.cpp, llama-kv-cache-iswa.cpp at 02c28f5, llama-context.cpp (GGML_PAD(n_ctx_seq, 256)), "
            "llama-hparams.cpp at 01b77b5 (n_embd_r, n_embd_s).",
            _llama_cpp,
            fp32_states=True,
            drop_conv_column=True,
        ),
    )
}
CONVENTIONS = tuple(_CONVENTIONS)


def get_convention(name: str) -> Convention:
    """The convention called `name`; its `.rule` and `.source` say what it does. LessonError for any other name."""
    if name not in _CONVENTIONS:
        raise LessonError(f"{name!r} is not a convention of sizing: choose one of {', '.join(CONVENTIONS)}.")
    return _CONVENTIONS[name]
