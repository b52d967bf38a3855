"""What a user may give as a prompt, and what it means: token ids, or messages for the chat template.

Variants with an obvious meaning work (ids in a numpy array, one message without its list, text in parts). Everything
else raises a LessonError that says what to give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from llmlesson.engine.messages import Messages, as_messages
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError

Ids = Sequence[int] | Tensor
Prompt = str | Messages | Ids


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer | None, missing: str, chat: bool, vocab_size: int) -> list[int]:
    """The token ids of a prompt, checked. If there is no tokenizer, `missing` says why.

    Raises LessonError for an empty prompt, for anything that isn't one, and for ids outside the vocabulary.
    """
    if isinstance(prompt, Mapping) and "input_ids" in prompt:  # what transformers' tokenizers return
        prompt = prompt["input_ids"]
    if isinstance(prompt, Tensor) or _are_ids(prompt):
        return checked_ids(prompt, vocab_size).tolist()  # type: ignore[arg-type]
    if not isinstance(prompt, str):
        prompt = as_messages(prompt)
    if tokenizer is None:
        raise LessonError(missing)
    if chat:
        return checked_ids(tokenizer.chat(prompt), vocab_size).tolist()
    if not isinstance(prompt, str):
        raise LessonError("With chat=False the prompt is a text or a list of ids; messages need the chat template.")
    return checked_ids(tokenizer.raw(prompt), vocab_size).tolist()


def checked_ids(ids: Ids, vocab_size: int) -> Tensor:
    """Token ids on the CPU, int64 [T]. A list that holds just one list of ids counts as that list.

    Raises LessonError for an empty list, for anything but whole numbers, and for ids outside the vocabulary.
    """
    try:
        if isinstance(ids, (str, bytes, Mapping)):
            raise TypeError
        tensor = torch.as_tensor(ids if hasattr(ids, "__array__") else list(ids)).cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise LessonError(
            "A list of token ids is needed here. engine.tokenizer.chat(text) or .encode(text) turns text into one."
        ) from None
    if tensor.ndim == 2 and len(tensor) == 1:
        tensor = tensor[0]
    if not tensor.numel():
        raise LessonError("The prompt is empty: give at least one token.")
    if tensor.ndim != 1:
        raise LessonError(f"A prompt is one list of token ids; this has the shape {list(tensor.shape)}.")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise LessonError(f"Token ids are whole numbers, not {tensor.dtype}.")
    tensor = tensor.to(torch.int64)
    wrong = tensor[(tensor < 0) | (tensor >= vocab_size)]
    if len(wrong):
        raise LessonError(f"There is no token with the id {int(wrong[0])}: ids run from 0 to {vocab_size - 1}.")
    return tensor


def _are_ids(prompt: object) -> bool:
    """Whether this is meant as token ids: numbers in any kind of container."""
    if hasattr(prompt, "__array__"):
        return True
    if not isinstance(prompt, Sequence) or isinstance(prompt, (str, bytes, bytearray)):
        return False
    row = prompt[0] if len(prompt) == 1 and isinstance(prompt[0], (list, tuple)) else prompt
    return all(hasattr(item, "__index__") or isinstance(item, float) for item in row)
