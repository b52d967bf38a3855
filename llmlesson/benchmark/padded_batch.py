"""A batch in one contiguous cache, padded to its longest row, to compare the paged cache with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from llmlesson.errors import LessonError

if TYPE_CHECKING:
    from llmlesson.engine import Engine


class PaddedBatch:
    """Prompts of any lengths, each in its own row with room for `max_tokens` positions.

    All rows begin together, and each step reads one token in every row. Shorter prompts are padded at their end, where
    the causal mask hides the padding.
    """

    @torch.no_grad()
    def __init__(self, engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        self._engine = engine
        self.cache = engine.new_cache(max_tokens, len(prompts))
        self.lengths = [len(prompt) for prompt in prompts]  # positions in use, by row
        self.cache.require_room(max(self.lengths))
        rows = [torch.tensor(prompt, device=engine.device) for prompt in prompts]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # [B, T]
        x = engine.model.forward(padded, self.cache)  # [B, T, H]
        last = x[range(len(rows)), [length - 1 for length in self.lengths]]  # [B, H]
        self.logits = engine.model.logits(last)  # float32 [B, V]: the scores of each row's next token

    @torch.no_grad()
    def step(self, tokens: Sequence[int]) -> None:
        """Read one token in every row. Afterwards `logits` has the scores of the next tokens."""
        if max(self.lengths) == self.cache.max_tokens:
            raise LessonError(f"A row of this batch is full: it holds {self.cache.max_tokens} positions.")
        device = self._engine.device
        step = self.cache.fixed_step(torch.tensor(self.lengths, device=device), max(self.lengths) + 1)
        x = self._engine.model.forward(torch.tensor(tokens, device=device)[:, None], step)  # [B, 1, H]
        self.lengths = [length + 1 for length in self.lengths]
        self.logits = self._engine.model.logits(x[:, -1])
