"""Byte-pair encoding by hand with a model's own merge table, one merge at a time. No widget."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import tokenizers

from llmlesson.engine.byte_level import spelled_bytes
from llmlesson.engine.tokenizer import Tokenizer
from llmlesson.errors import LessonError
from llmlesson.views.tokens import Chip, shown

_rules: WeakKeyDictionary[Tokenizer, Rules] = WeakKeyDictionary()


@dataclass(frozen=True)
class Merge:
    """Two neighbours become one: the symbol that begins at `start` takes in the one that begins at `joint`."""

    rank: int  # the row of the merge table; the lowest rank goes first
    start: int
    joint: int


@dataclass(frozen=True)
class Rules:
    """What a tokenizer.json says about cutting text, and the library's own parts for what is not BPE."""

    backend: tokenizers.Tokenizer  # without control tokens
    vocabulary: dict[str, int]
    ranks: dict[tuple[str, str], int]  # a pair of symbols: its row in the merge table
    byte_level: bool  # symbols spell bytes in GPT-2's alphabet
    byte_fallback: bool  # characters that are not in the vocabulary are spelled <0xNN>
    whole_words: bool  # a piece that is in the vocabulary is taken as it is

    def pieces(self, text: str) -> list[str]:
        """The text as the library cuts it before any merge: no merge crosses the edge of a piece."""
        if self.backend.normalizer:
            text = self.backend.normalizer.normalize_str(text)
        if not self.backend.pre_tokenizer:
            return [text] if text else []
        return [piece for piece, _ in self.backend.pre_tokenizer.pre_tokenize_str(text)]

    def symbols(self, piece: str) -> list[str]:
        """What a piece starts as: one symbol a byte or character, without those that the vocabulary can't spell."""
        if self.whole_words and piece in self.vocabulary:
            return [piece]
        found = []
        for char in piece:
            if char in self.vocabulary:
                found.append(char)
            elif self.byte_fallback:
                found += [f"<0x{byte:02X}>" for byte in char.encode()]
        return found

    def lost(self, piece: str) -> list[str]:
        """The characters of a piece that the vocabulary can't spell: nothing of them is left in the tokens."""
        if self.byte_fallback or (self.whole_words and piece in self.vocabulary):
            return []
        return [char for char in piece if char not in self.vocabulary]

    def merges(self, symbols: list[str]) -> Iterator[Merge]:
        """All merges of one piece in their order: the lowest rank first, of equal ones the leftmost."""
        parts = dict(enumerate(symbols))
        after = {i: i + 1 for i in range(len(symbols) - 1)}
        before = {right: left for left, right in after.items()}
        queue: list[tuple[int, int, str, str]] = []

        def look(left: int | None) -> None:
            if left is not None and left in after:
                pair = parts[left], parts[after[left]]
                if pair in self.ranks:
                    heapq.heappush(queue, (self.ranks[pair], left, *pair))

        for i in range(len(symbols)):
            look(i)
        while queue:
            rank, left, *pair = heapq.heappop(queue)
            right = after.get(left)
            if right is None or [parts[left], parts[right]] != pair:
                continue  # one of the two has been merged since
            parts[left] += parts.pop(right)
            beyond = after.pop(right, None)
            if beyond is None:
                del after[left]
            else:
                after[left], before[beyond] = beyond, left
            yield Merge(rank, left, right)
            look(before.get(left))
            look(left)

    def raw(self, symbol: str) -> bytes:
        """The bytes that a symbol stands for."""
        if self.byte_level:
            return spelled_bytes(symbol)
        if self.byte_fallback and len(symbol) == 6 and symbol.startswith("<0x"):
            return bytes([int(symbol[3:5], 16)])
        return symbol.replace("▁", " ").encode()


class TokenizerSession:
    """A text, and its tokens after so many merges."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        """Raises LessonError for a tokenizer that doesn't merge pairs."""
        self.tokenizer = tokenizer
        self.text = text
        self.rules = rules_of(tokenizer)
        cut = self.rules.pieces(text)
        pieces = [self.rules.symbols(piece) for piece in cut]
        self.lost = [self.rules.raw(char) for piece in cut for char in self.rules.lost(piece)]  # bytes without a token
        self.symbols = [symbol for piece in pieces for symbol in piece]
        self.piece_starts: set[int] = set()
        in_order, start = [], 0
        for piece in pieces:
            self.piece_starts.add(start)
            in_order.append([Merge(m.rank, m.start + start, m.joint + start) for m in self.rules.merges(piece)])
            start += len(piece)
        # Pieces don't affect each other, so any order between them will do. We use the table's, as in training.
        self.merges = list(heapq.merge(*in_order, key=lambda merge: merge.rank))
        if self.ids(len(self.merges)) != tokenizer.encode(text):
            raise LessonError(
                "The merges in this model's tokenizer.json don't produce the tokens that its library produces, so they "
                "can't be shown. engine.tokenizer.encode(text) works."
            )

    def parts(self, done: int) -> dict[int, str]:
        """The symbols after `done` merges, by where each begins."""
        parts = dict(enumerate(self.symbols))
        for merge in self.merges[:done]:
            parts[merge.start] += parts.pop(merge.joint)
        return parts

    def ids(self, done: int) -> list[int]:
        """Their ids."""
        return [self.rules.vocabulary[symbol] for symbol in self.parts(done).values()]

    def chips(self, done: int) -> list[Chip]:
        """What to draw after `done` merges; the symbol that the last of them made is marked."""
        fresh = self.merges[done - 1].start if done else None
        return [
            Chip(
                token_id=self.rules.vocabulary[symbol],
                raw=self.rules.raw(symbol),
                fresh=start == fresh,
                starts_piece=start in self.piece_starts,
            )
            for start, symbol in self.parts(done).items()
        ]

    @cached_property
    def chat_chips(self) -> list[Chip]:
        """The text as a message in the model's chat template. Raises LessonError where the model has none."""
        special = {token_id: name for name, token_id in self.tokenizer.special_tokens.items()}
        ids = self.tokenizer.chat(self.text)
        return [
            Chip(i, special[i].encode(), special=True)
            if i in special
            else Chip(i, self.rules.raw(self.tokenizer.token(i)))
            for i in ids
        ]

    def explain(self, done: int) -> str:
        """Merge number `done` in words."""
        if not self.merges:
            return "No two neighbours are in the merge table: there is nothing to merge."
        if not done:
            return f"No merge yet: {len(self.symbols)} symbols, of which {len(self.merges)} merges make tokens."
        merge = self.merges[done - 1]
        before = self.parts(done - 1)
        left, right = self.rules.raw(before[merge.start]), self.rules.raw(before[merge.joint])
        return (
            f"Merge {done} of {len(self.merges)}: {shown(left)} + {shown(right)} → {shown(left + right)}, "
            f"rank {merge.rank:,} in the merge table (they go from 0 to {len(self.rules.ranks) - 1:,})."
        )


def rules_of(tokenizer: Tokenizer) -> Rules:
    """The rules of a tokenizer, read once. Raises LessonError for one that doesn't work by merging pairs."""
    if tokenizer not in _rules:
        library = tokenizer.plain
        definition = json.loads(library.to_str())
        model = definition["model"]
        if model["type"] != "BPE":
            raise LessonError(
                f"This model's tokenizer is a {model['type']} model; only BPE has merges to step through."
            )
        # Files written before 2024 have each pair as one string.
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        _rules[tokenizer] = Rules(
            backend=library,
            vocabulary=model["vocab"],
            ranks={(left, right): rank for rank, (left, right) in enumerate(pairs)},
            byte_level='"ByteLevel"' in json.dumps(definition["pre_tokenizer"]),
            byte_fallback=model["byte_fallback"],
            whole_words=model["ignore_merges"],
        )
    return _rules[tokenizer]
