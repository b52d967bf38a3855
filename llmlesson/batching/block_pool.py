"""Who holds which blocks of the paged KV cache, and which text is in them. Only numbers, no tensors.

A block has room for the keys and values of `block_size` tokens, in all layers. Several requests may hold the same one.
A full block with a known text can be found by that text, even after its last holder has released it. It is then both
free and known, until someone takes it for another text. So keeping old texts costs no room.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256

from llmlesson.errors import LessonError


def first_key(salt: str = "") -> bytes:
    """Where a chain of keys begins. Texts with different salts have no key in common, so they never share a block."""
    return sha256(salt.encode()).digest()


def next_key(before: bytes, ids: Sequence[int]) -> bytes:
    """The key of a block: `before` is the key of the previous block, `ids` are its own tokens.

    K and V of a position depend on all tokens up to there, and so does the key. Texts with equal keys count as equal:
    with SHA-256 nobody can find two texts for which that is wrong.
    """
    return sha256(before + array("q", ids).tobytes()).digest()


def block_keys(ids: Sequence[int], block_size: int, salt: str = "") -> list[bytes]:
    """The keys of all full blocks of a text, 32 bytes each: len(ids) // block_size of them."""
    keys = [first_key(salt)]
    for start in range(0, len(ids) - block_size + 1, block_size):
        keys.append(next_key(keys[-1], ids[start : start + block_size]))
    return keys[1:]


def blocks_needed(tokens: int, block_size: int) -> int:
    """How many blocks hold this many tokens; the last one may be partly empty."""
    return -(-tokens // block_size)


class BlockPool:
    """Blocks 0 to `num_blocks` - 1: how many holders each has, under which key it is known, which is taken next.

    Every operation raises LessonError if it is used wrongly, and leaves the pool unchanged.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise LessonError(
                f"Can't make a pool of {num_blocks} blocks of {block_size} tokens: both must be at least 1."
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.epoch = 0  # how many times `forget` was called
        self._holders = [0] * num_blocks
        self._key_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free = OrderedDict.fromkeys(range(num_blocks))  # the first is taken next

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, including known ones."""
        return len(self._free)

    @property
    def num_known(self) -> int:
        """Blocks that can be found by their text, held or not."""
        return len(self._block_of)

    def holders(self, block: int) -> int:
        """How many requests hold this block."""
        return self._holders[block]

    def key(self, block: int) -> bytes | None:
        """The key under which this block is known, or None."""
        return self._key_of[block]

    def free_blocks(self) -> list[int]:
        """The free blocks in the order in which they will be taken."""
        return list(self._free)

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks known under these keys, up to the first unknown key: blocks after a gap are useless."""
        found = []
        for key in keys:
            if key not in self._block_of:
                break
            found.append(self._block_of[key])
        return found

    def hold(self, blocks: Sequence[int]) -> None:
        """Add a holder to each of these blocks, which `find` has just returned. They are no longer free."""
        for block in blocks:
            self._free.pop(block, None)
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Take `count` free blocks for new text, least recently used first. Their old text can't be found any more."""
        if not 0 <= count <= self.num_free:
            raise LessonError(f"Can't take {count} blocks: {self.num_free} of {self.num_blocks} are free.")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
            key, self._key_of[block] = self._key_of[block], None
            if key is not None:
                del self._block_of[key]
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """Remove a holder from each of these blocks, which hold one text in order.

        The end of the text is released first and so is reused first: the beginning is what other texts may share. A
        block that can't be found is useless to others, and is reused before all that can.
        """
        wrong = [block for block, times in Counter(blocks).items() if times > self._holders[block]]
        if wrong:
            raise LessonError(f"Block {wrong[0]} is released more times than it was taken or held.")
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
                if self._key_of[block] is None:
                    self._free.move_to_end(block, last=False)

    def publish(self, block: int, key: bytes) -> None:
        """Make this block known under this key: it is full, and K and V of all its positions are in it.

        If another block is already known under the key, nothing changes: one block per text is enough to find, and
        tables with the other copy stay as they are.
        """
        if not self._holders[block]:
            raise LessonError(f"Block {block} is free: only a block with a holder can be published.")
        if self._key_of[block] is None and key not in self._block_of:
            self._key_of[block] = key
            self._block_of[key] = block

    def forget(self) -> None:
        """Make all blocks unknown, for example after a change of weights. Holders keep their blocks.

        What they compute from now on still depends on old blocks. It must not become known under a key that a new text
        could have, so every chain of keys begins with `epoch`, which changes here.
        """
        self.epoch += 1
        self._block_of.clear()
        self._key_of = [None] * self.num_blocks

    def check(self, tables: Iterable[Sequence[int]] | None = None) -> None:
        """Raise AssertionError if the pool contradicts itself, or the tables of all its holders if given."""
        for block in range(self.num_blocks):
            assert (block in self._free) == (self._holders[block] == 0), f"block {block}: free and held, or neither"
            key = self._key_of[block]
            assert key is None or self._block_of.get(key) == block, f"block {block} can't be found under its key"
        known = sum(key is not None for key in self._key_of)
        assert known == len(self._block_of), "a key leads to a block that doesn't have it"
        if tables is not None:
            held = [0] * self.num_blocks
            for table in tables:
                for block in table:
                    held[block] += 1
            assert held == self._holders, "holders and tables differ"
