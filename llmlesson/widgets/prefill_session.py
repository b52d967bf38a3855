"""One prompt, read chunk by chunk on the real model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmlesson.errors import LessonError
from llmlesson.views.decode import Candidate
from llmlesson.views.prefill import Columns, Comparison
from llmlesson.widgets.spelling import spelled

if TYPE_CHECKING:
    from torch import Tensor

    from llmlesson.engine import Engine, KVCache

LIMIT = 256  # tokens that are read: enough to see how it goes, and done within a second or two on a laptop
FIRST = 64  # tokens in a pass unless another chunk size is chosen: what a laptop reads in less than a second
CANDIDATES = 8


class PrefillSession:
    """A prompt, a cache, and what the passes so far have put there. No widget.

    Hold the widgets' lock around `read` and `compare`, which run the engine.
    """

    def __init__(self, engine: Engine, text: str) -> None:
        self.engine = engine
        self.chunk = FIRST
        self.start(text)

    def start(self, text: str) -> None:
        """Take another prompt, in the model's chat template (at most its first 256 tokens). Reads nothing yet."""
        ids = self.engine.prompt_ids(text)
        self.text = text
        self.total = len(ids)
        self.ids = ids[:LIMIT]
        self.token_texts = [spelled(self.engine.tokenizer, token) for token in self.ids]
        self._whole: tuple[KVCache, Tensor] | None = None  # the cache of one pass over all of it, and its logits
        self.reset()

    def reset(self) -> None:
        """Empty the cache."""
        self.cache = self.engine.new_cache(len(self.ids))
        self.passes: list[tuple[int, int]] = []  # (start, stop) of each
        self.comparison: Comparison | None = None
        self._queries: list[list[Tensor]] = []  # by pass and layer, [Hq, T, D]
        self._logits: Tensor | None = None  # float32 [V], after the last position read

    def set_chunk(self, chunk: int) -> None:
        """Read this many tokens per pass from now on, and start over. Raises LessonError for less than one."""
        if chunk < 1:
            raise LessonError(f"A chunk must have at least one token, not {chunk}.")
        self.chunk = chunk
        self.reset()

    @property
    def read(self) -> int:
        """Positions in the cache."""
        return self.cache.length

    @property
    def done(self) -> bool:
        return self.read == len(self.ids)

    def read_chunk(self) -> None:
        """One forward pass: the next chunk's K and V go into the cache. Does nothing at the end of the prompt."""
        if self.done:
            return
        start, stop = self.read, min(self.read + self.chunk, len(self.ids))
        with self.engine.record() as recording:
            self.engine.prefill(self.ids[start:stop], self.cache)
        layers = range(self.engine.config.num_hidden_layers)
        last = recording[layers[-1]].after[-1].to(self.engine.device)  # [H]
        self._logits = self.engine.model.logits(last).cpu()
        self._queries.append([recording[layer].q for layer in layers])
        self.passes.append((start, stop))
        if len(self.passes) == 1 and self.done:
            self._whole = self.cache, self._logits

    def compare(self) -> Comparison | None:
        """The cache compared with that of one pass over the whole prompt. None if the prompt is not read in chunks."""
        if not self.done or len(self.passes) < 2 or self._logits is None:
            return None
        if self._whole is None:
            cache = self.engine.new_cache(len(self.ids))
            self._whole = cache, self.engine.logits(self.ids, cache)[-1].cpu()
        whole, logits = self._whole
        difference = largest = 0.0
        for layer in range(whole.num_layers):
            for ours, theirs in (
                (self.cache.keys(layer), whole.keys(layer)),
                (self.cache.values(layer), whole.values(layer)),
            ):
                difference = max(difference, float((ours.float() - theirs.float()).abs().max()))
                largest = max(largest, float(theirs.abs().max()))
        probable = (self._logits.softmax(0) - logits.softmax(0)).abs().max()
        self.comparison = Comparison(
            len(self.ids),
            len(self.passes),
            difference,
            largest,
            float(probable),
            bool(self._logits.argmax() == logits.argmax()),
        )
        return self.comparison

    def columns(self, first: int, count: int) -> Columns:
        """`count` columns from position `first` on, or fewer at the prompt's end."""
        return Columns(first, self.token_texts[first : first + count], self.read)

    def lengths(self, columns: Columns) -> tuple[list[list[float]], list[list[float]]]:
        """How long K and V are, by layer and filled column: 0 for the shortest of their layer, 1 for the longest."""
        layers = range(self.cache.num_layers)
        part = slice(columns.first, columns.first + columns.filled)
        return (
            [_relative(self.cache.keys(layer))[part] for layer in layers],
            [_relative(self.cache.values(layer))[part] for layer in layers],
        )

    def weights(self, layer: int, head: int, columns: Columns) -> list[list[float]]:
        """Attention weights of one query head: a row for each filled column, over all positions up to the last one."""
        from llmlesson.engine.attention import attention_weights

        first, stop = columns.first, columns.first + columns.filled
        if not columns.filled:
            return []
        # [1, T, D] of the queries and [1, S, D] of the keys; as in the engine, the queries are the last T of S.
        queries = [query for each in self._queries for query in each[layer][head]][first:stop]
        kv_head = head // self.engine.config.group_size
        keys = self.cache.keys(layer)[kv_head : kv_head + 1, :stop].cpu()
        rows: list[list[float]] = attention_weights(_stack(queries), keys)[0].tolist()
        return [row[: first + i + 1] for i, row in enumerate(rows)]

    def candidates(self) -> list[Candidate]:
        """The likeliest next tokens after the last position read."""
        if self._logits is None:
            return []
        best = self._logits.softmax(0).topk(CANDIDATES)
        return [
            Candidate(token, spelled(self.engine.tokenizer, token), probability)
            for probability, token in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def _relative(vectors: Tensor) -> list[float]:
    """Lengths of the vectors of each position, [kv_heads, S, D] → [S], from 0 for the shortest to 1 for the longest.

    Lengths of one layer lie close together, so as shares of the longest nearly all would look alike.
    """
    lengths = vectors.float().square().sum(dim=(0, 2)).sqrt()
    if not len(lengths):
        return []
    span = lengths.max() - lengths.min()
    shares: list[float] = ((lengths - lengths.min()) / span).tolist() if span > 0 else [1.0] * len(lengths)
    return shares


def _stack(rows: list[Tensor]) -> Tensor:
    """[D] each → [1, T, D]."""
    import torch

    return torch.stack(rows)[None]
