"""One request, a token at a time, forwards and back, with branches. No widget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from llmlesson.engine import Engine, KVCache, Request, Sampling
from llmlesson.errors import LessonError
from llmlesson.measure import cost
from llmlesson.measure.cost import Cost

MOST_TOKENS = 256  # of an answer
CHUNK = 256  # tokens of a prompt read before progress is told
SEED = 0  # the same clicks give the same text

Progress = Callable[[int, int], bool]  # tokens read, and of how many → whether to go on

ENDS = {
    "eos": "the model gave its end-of-sequence token",
    "length": f"the answer has {MOST_TOKENS} tokens, as many as this widget makes",
    "cache_full": "the KV cache is full: it holds the model's whole context",
}


@dataclass(frozen=True)
class Node:
    """After one forward pass: its scores, and the request with the token chosen from them, which is not yet read."""

    logits: Tensor  # float32 [V]
    request: Request  # its state after this token; the next step continues with a fork of it
    costs: tuple[Cost, ...]  # of the forward pass, or of several for a prompt read in chunks
    seconds: float
    by_hand: bool = False  # taken instead of the one that was drawn

    @property
    def token(self) -> int:
        return self.request.token_ids[-1]


@dataclass
class Branch:
    """One answer. Nodes after `at` are known from before a Back; the cache ends at `at`."""

    name: str
    nodes: list[Node]
    cache: KVCache
    at: int = 0
    forked_at: int | None = None  # index of the first token that differs from the branch that it left

    @property
    def tokens(self) -> list[int]:
        """All that are known."""
        return [node.token for node in self.nodes]


class DecodeSession:
    """A prompt that was read, and its answer so far.

    After `n` steps the cache holds the prompt and n tokens; token n + 1 is chosen and waits to be read by the next
    step. Raises LessonError, before anything is made, for a prompt that can't be read.
    """

    def __init__(
        self, engine: Engine, prompt: str | Sequence[int], chat: bool = True, progress: Progress | None = None
    ) -> None:
        self.engine = engine
        self.prompt = prompt
        self.chat = chat
        self.sampling = Sampling()
        self._fresh = engine.request(prompt, MOST_TOKENS, replace(self.sampling, seed=SEED), chat=chat)
        self.bit_equal: bool | None = None  # after a step that was made before: whether its scores are the same
        first, cache = self._read_prompt(progress or (lambda done, total: True))
        self.branches = [Branch("A", [first], cache)]
        self.current = 0

    @property
    def prompt_ids(self) -> list[int]:
        return self._fresh.ids

    @property
    def branch(self) -> Branch:
        return self.branches[self.current]

    @property
    def cache(self) -> KVCache:
        """Of the current branch: the prompt, and the answer without its last token."""
        return self.branch.cache

    @property
    def node(self) -> Node:
        """What the last forward pass gave."""
        return self.branch.nodes[self.branch.at]

    @property
    def tokens(self) -> list[int]:
        """The answer so far, the waiting token last."""
        return self.branch.tokens[: self.branch.at + 1]

    @property
    def finish_reason(self) -> str | None:
        """Why there is no next step: "eos" | "length" | "cache_full"; None if there is one."""
        return self.node.request.finish_reason

    def step(self) -> None:
        """Read the waiting token: the cache grows by one position, and the next token is chosen.

        If this step was made before and then undone, it is computed again. If that gives another token, because the
        sampling has changed, that is a new branch. Raises LessonError if the answer has ended.
        """
        if self.finish_reason:
            raise LessonError(
                f"There is no next step: {ENDS[self.finish_reason]}. Go back, take another token, or reset."
            )
        branch, length = self.branch, self.cache.length
        known = branch.nodes[branch.at + 1] if branch.at + 1 < len(branch.nodes) else None
        try:
            new = self._read([self.node.token], self.cache, self.node.request)
            if known and known.by_hand:
                new = self._by_hand(new, self.node.request, known.token)
            if known and known.token != new.token:
                self._branch_off(branch.at + 1, new)
                branch.cache.truncate(length)
            else:
                branch.nodes[branch.at + 1 : branch.at + 2] = [new]
                branch.at += 1
        except BaseException:
            branch.cache.truncate(length)
            raise
        self.bit_equal = None if known is None else torch.equal(known.logits, new.logits)

    def back(self) -> None:
        """Undo the last step: the cache loses its last position. Raises LessonError if only the prompt is left."""
        if self.branch.at == 0:
            raise LessonError("There is nothing to undo: only the prompt has been read.")
        self.branch.at -= 1
        self.cache.truncate(len(self.prompt_ids) + self.branch.at)
        self.bit_equal = None

    def take(self, token: int) -> None:
        """Replace the chosen token with this one, as a new branch. The old branch is kept.

        Raises LessonError for an id outside the vocabulary.
        """
        if not 0 <= token < self.engine.config.vocab_size:
            raise LessonError(f"There is no token with the id {token}.")
        if token != self.node.token:
            at = self.branch.at
            before = self.branch.nodes[at - 1].request if at else self._fresh
            self._branch_off(at, self._by_hand(self.node, before, token))
        self.bit_equal = None

    def switch(self, index: int) -> None:
        """Continue another branch where you left it. Raises LessonError if there is no such branch."""
        if not 0 <= index < len(self.branches):
            raise LessonError(f"There are {len(self.branches)} branches, but no number {index + 1}.")
        self.current = index
        self.bit_equal = None

    def reset(self) -> None:
        """Go back to the prompt without reading it again: choose the first token anew, and drop all branches."""
        first = self.branches[0].nodes[0]
        request = self._choose(first.logits, self._fresh)
        cache = self.branches[0].cache
        cache.truncate(len(self.prompt_ids))
        self.branches = [Branch("A", [replace(first, request=request, by_hand=False)], cache)]
        self.current = 0
        self.bit_equal = None

    def _branch_off(self, at: int, node: Node) -> None:
        """Switch to the branch that equals this one before index `at` and has `node` there.

        The current cache must hold what comes before `at`.
        """
        path = [*self.branch.tokens[:at], node.token]
        for index, known in enumerate(self.branches):
            if known.tokens[: at + 1] == path:
                known.cache, known.at, self.current = self.cache.clone(), at, index
                return
        name = chr(ord("A") + len(self.branches)) if len(self.branches) < 26 else f"Branch {len(self.branches) + 1}"
        self.branches.append(Branch(name, [*self.branch.nodes[:at], node], self.cache.clone(), at, at))
        self.current = len(self.branches) - 1

    def _read_prompt(self, progress: Progress) -> tuple[Node, KVCache]:
        ids, context = self.prompt_ids, self.engine.config.max_position_embeddings
        cache = self.engine.new_cache(min(context, len(ids) + MOST_TOKENS - 1))
        costs: tuple[Cost, ...] = ()
        seconds = 0.0
        for start in range(0, len(ids), CHUNK):
            if not progress(start, len(ids)):
                raise LessonError(
                    f"Stopped after {start} of the prompt's {len(ids)} tokens. What was there before is kept."
                )
            node = self._read(ids[start : start + CHUNK], cache, self._fresh)
            costs, seconds = (*costs, *node.costs), seconds + node.seconds
        return replace(node, costs=costs, seconds=seconds), cache

    def _read(self, ids: list[int], cache: KVCache, request: Request) -> Node:
        """One forward pass, and the choice of a token by a fork of the request."""
        engine = self.engine
        counted = cost.prefill(engine.config, len(ids), cache.length, 1, engine.dtype, engine.model.quantized)
        started = time.perf_counter()
        logits = self.engine.read(ids, cache)
        chosen = self._choose(logits, request)
        return Node(logits, chosen, (counted,), time.perf_counter() - started)

    def _choose(self, logits: Tensor, request: Request) -> Request:
        """A fork of the request after it took a token with the current sampling. The original is unchanged."""
        fork = request.fork(self.sampling)
        fork.take(logits)
        return fork

    def _by_hand(self, node: Node, before: Request, token: int) -> Node:
        """This node with another token; the random numbers go on as if the request had drawn this one."""
        fork = before.fork(self.sampling)
        fork.choose(node.logits)
        fork.accept(token)
        return replace(node, request=fork, by_hand=True)
