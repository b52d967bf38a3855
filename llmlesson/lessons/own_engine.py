"""An engine put together from a learner's functions, with the course's solution for each that is missing.

The forward pass of the default model for one sequence. Shapes: T new positions, S positions after them, H hidden_size,
D head_dim, Hq query and Hkv key-value heads, V vocabulary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from llmlesson.engine.attention import attend
from llmlesson.engine.byte_level import spelled_bytes
from llmlesson.engine.engine import Engine
from llmlesson.engine.rope import rotate, rotation
from llmlesson.errors import LessonError
from llmlesson.lessons.exercise import find_exercise
from llmlesson.lessons.my_file import NAME, PARTS, load_parts, path_of_mine
from llmlesson.lessons.real import real_engine
from llmlesson.views import exercise as view

PROMPT = "Explain quantum computing like I'm ten."


@dataclass(frozen=True)
class MyAnswer:
    """What the loop returned, and all tokens that were chosen along the way."""

    text: str
    finish_reason: str
    token_ids: list[int]


class MyEngine:
    """Answers prompts with a learner's functions. Shown, it is a scoreboard: which parts are theirs."""

    def __init__(self, engine: Engine, mine: dict[str, Any]) -> None:
        """mine: functions by exercise."""
        self.engine = engine
        self.mine = mine
        self._parts = {
            name: mine.get(name) or find_exercise(name).build(find_exercise(name).solution) for name in PARTS
        }

    def answer(
        self,
        prompt: str,
        max_new_tokens: int = 256,
        stop: str | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        show: Callable[[str], object] | None = None,
    ) -> MyAnswer:
        """Answer a prompt, put into the chat template. Greedy at temperature 0, else a draw from what top-p leaves.

        show: called with each piece of text as soon as it is ready. Raises LessonError for settings that make no
        sense, and if one of the learner's functions fails.
        """
        request = self.engine.request(prompt, max_new_tokens)  # checks both
        if not 0 <= temperature < float("inf") or not 0 <= top_p <= 1:
            raise LessonError(
                f"temperature must be 0 or more and top_p from 0 to 1, not {temperature!r} and {top_p!r}."
            )
        room = min(len(request.ids) + request.max_new_tokens - 1, self.engine.config.max_position_embeddings)
        run = _Run(self, room, temperature, top_p, seed, show)
        if stop is None and "answer-loop" in self.mine and "generation-loop" not in self.mine:
            reason = run.until_it_ends(request.ids, request.max_new_tokens)
            return MyAnswer(self.engine.tokenizer.decode(run.token_ids), reason, run.token_ids)
        result = self.ask("generation-loop", run, request.ids, run.new_cache(room), request.max_new_tokens, stop)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise LessonError(f"Your generate returned {result!r}, but it must return (text, reason). {_again('03')}")
        text, reason = result
        return MyAnswer(text, reason, run.token_ids)

    def matches(self, prompt: str = PROMPT, max_new_tokens: int = 31) -> bool:
        """Whether its greedy answer has the same tokens as the engine's."""
        theirs = self.engine.generate(prompt, max_new_tokens=max_new_tokens)
        return self.answer(prompt, max_new_tokens).token_ids == theirs.token_ids

    def ask(self, part: str, *args: Any) -> Any:
        """Call a part."""
        return self.guarded(part, self._parts[part], *args)

    def guarded(self, part: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of a part; an error names that part."""
        try:
            return function(*args)
        except LessonError:
            raise
        except Exception as error:
            exercise, what = find_exercise(part), f"{type(error).__name__}: {error}"
            again = _again(exercise.lesson)
            raise LessonError(f"{exercise.function_name} in {NAME} failed ({what}). {again}") from error

    def _rows(self) -> list[list[str]]:
        return [
            [
                find_exercise(name).function_name,
                "yours" if name in self.mine else "the course's",
                what,
                f"lesson {find_exercise(name).lesson}, {name}",
            ]
            for name, what in PARTS.items()
        ]

    def _headline(self) -> str:
        return f"{len(self.mine)} of {len(PARTS)} parts of this engine are yours."

    def __repr__(self) -> str:
        return view.report_text(self._headline(), [(row[0], f"{row[1]}: {row[2]} ({row[3]})") for row in self._rows()])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        head = ["function", "whose", "what it does", "where"]
        return {"text/html": view.scoreboard(self._headline(), head, self._rows()), "text/plain": repr(self)}


def my_engine(file: str | Path | None = None) -> MyEngine:
    """The engine that a learner's functions make, with the course's own for those that are missing.

    file: `my_engine.py`, beside the notebook if not given; it need not exist. Works on the default model in float32
    on the CPU. Raises LessonError for a file that can't be read or run.
    """
    return MyEngine(real_engine(), load_parts(Path(file) if file else path_of_mine()))


def main(file: str) -> None:
    """`python my_engine.py "a prompt"`: answer it, word by word."""
    try:
        mine = my_engine(file)
        print(mine, end="\n\n")
        mine.answer(" ".join(sys.argv[1:]) or PROMPT, show=lambda text: print(text, end="", flush=True))
        print()
    except LessonError as error:
        raise SystemExit(f"my_engine: {error}") from None


class _Cache:
    """A layer's cache for each layer, as `generate` sees them."""

    def __init__(self, layers: list[Any], max_tokens: int) -> None:
        self.layers, self.max_tokens = layers, max_tokens

    @property
    def length(self) -> int:
        return int(self.layers[0].length)


class _Enough(BaseException):
    """Ends a loop that knows no other end. Not an Exception, so that no `except Exception` of a learner keeps it."""


class _Run:
    """One answer: the engine that a learner's `generate` is given."""

    def __init__(
        self,
        mine: MyEngine,
        room: int,
        temperature: float,
        top_p: float,
        seed: int,
        show: Callable[[str], object] | None,
    ) -> None:
        self._room = room  # positions of a cache that nobody asked to be another size
        self._mine, self._temperature, self._top_p, self._show = mine, temperature, top_p, show
        self._generator = torch.Generator().manual_seed(seed)
        self._waiting = b""
        self.model, self.config = mine.engine.model, mine.engine.config
        self.tokenizer, self.eos_token_ids = mine.engine.tokenizer, mine.engine.eos_token_ids
        self.token_ids: list[int] = []

    def new_cache(self, max_tokens: int) -> _Cache:
        c = self.config
        sizes = c.num_key_value_heads, c.head_dim, max_tokens
        return _Cache([self._mine.ask("kv-cache", *sizes) for _ in range(c.num_hidden_layers)], max_tokens)

    def until_it_ends(self, ids: list[int], max_new_tokens: int) -> str:
        """Answer with the learner's first loop, which knows only the end-of-sequence token. Returns why it ended."""
        reason = "eos"

        def emit(token: int) -> None:
            nonlocal reason
            full = len(ids) + len(self.token_ids) > self._room
            if len(self.token_ids) == max_new_tokens or full:
                reason = "cache_full" if len(self.token_ids) < max_new_tokens else "length"
                raise _Enough

        with suppress(_Enough):
            self._mine.ask("answer-loop", self, ids, emit)
        return reason

    def prefill(self, ids: list[int], cache: _Cache | None = None) -> tuple[_Cache, int]:
        cache = cache or self.new_cache(self._room)
        return cache, self._choose(*self._next(ids, cache))

    def decode(self, cache: _Cache, token: int) -> tuple[_Cache, int]:
        return self.prefill([token], cache)

    def logits(self, ids: list[int], cache: _Cache) -> Tensor:
        """For loops that take the best score themselves: that of the token that was chosen is the best, [1, V]."""
        token, logits = self._next(ids, cache)
        chosen = self._choose(token, logits)
        return (logits if chosen == token else F.one_hot(torch.tensor(chosen), len(logits)).float())[None]

    def _choose(self, token: int, logits: Tensor) -> int:
        if self._temperature > 0:
            probabilities = (logits / self._temperature).softmax(dim=0)
            kept = self._mine.ask("top-p", probabilities, self._top_p)
            [kept] = _expect("top-p", [kept], [len(logits)])
            token = int(torch.multinomial(kept, 1, generator=self._generator))
        self.token_ids.append(token)
        if self._show is not None and token not in self.tokenizer.control_names:
            new = spelled_bytes(self.tokenizer.token(token))
            text, self._waiting = self._mine.ask("whole-characters", self._waiting, new)
            self._show(text)
        return token

    @torch.no_grad()
    def _next(self, ids: list[int], cache: _Cache) -> tuple[int, Tensor]:
        """Read ids. Returns the likeliest next token, and the scores of all, [V]."""
        mine, c, old, new = self._mine, self.config, cache.length, len(ids)
        kv_heads, head_dim = c.num_key_value_heads, c.head_dim
        cos, sin = rotation(self.model.frequencies, torch.arange(old, old + new)[None])  # [1, 1, T, D/2]
        mask = mine.ask("causal-mask", old, new)
        _expect("causal-mask", [mask], [new, old + new])
        x = self.model.embedding[ids]  # [T, H]
        for layer, memory in zip(self.model.layers, cache.layers, strict=True):
            made = mine.ask("keys-and-values", x, layer, cos[0, 0], sin[0, 0], kv_heads)
            k, v = _expect("keys-and-values", made, [kv_heads, new, head_dim], count=2)
            everything = mine.guarded("kv-cache", memory.append, k, v)
            keys, values = _expect("kv-cache", everything, [kv_heads, old + new, head_dim], count=2)
            qkv, out, gate_up, down = (_plain(w) for w in (layer.qkv, layer.out, layer.gate_up, layer.down))
            q = self._norm(x, layer.attention_norm) @ qkv[:, : c.num_attention_heads * head_dim]  # [T, Hq D]
            q = rotate(q.unflatten(-1, (-1, head_dim)).transpose(0, 1)[None], cos, sin)  # [1, Hq, T, D]
            attended = attend(q, keys[None], values[None], mask[None, None])[0]  # [Hq, T, D]
            x = x + attended.transpose(0, 1).flatten(1) @ out
            gate, up = (self._norm(x, layer.mlp_norm) @ gate_up).chunk(2, dim=-1)
            x = x + (F.silu(gate) * up) @ down
        token, logits = mine.ask("first-token", x, self.model)
        _expect("first-token", [logits], [c.vocab_size])
        return int(token), logits

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.rms_norm_eps)


def _expect(part: str, tensors: Any, shape: list[int], count: int = 1) -> list[Tensor]:
    """The tensors that a part returned. Raises LessonError, naming it, unless they are `count` of this shape."""
    right = isinstance(tensors, (list, tuple)) and len(tensors) == count
    if not right or not all(isinstance(tensor, Tensor) and list(tensor.shape) == shape for tensor in tensors):
        exercise, what = find_exercise(part), "a tensor" if count == 1 else f"{count} tensors"
        raise LessonError(
            f"{exercise.function_name} in {NAME} must return {what} of shape {shape}. {_again(exercise.lesson)}"
        )
    return list(tensors)


def _plain(weights: Any) -> Tensor:
    if not isinstance(weights, Tensor):
        raise LessonError("my_engine works with weights in float32: load the model without dtype='int8'.")
    return weights


def _again(lesson: str) -> str:
    return f"Check it again in lesson {lesson}, or delete its part from {NAME}."
