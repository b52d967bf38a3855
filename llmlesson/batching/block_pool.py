"""Which blocks of the paged KV cache are in whose hands, and which text lies in them. Numbers only, no tensors.

A block has room for the keys and values of `block_size` tokens, in all layers. Several requests may hold the same one.
A full block whose text is known can be found by that text, also after the last holder has let go of it: it is then
free and known at once, until someone takes it for another text. So the cache of old texts costs no room.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256

from llmlesson.errors import LessonError


def first_key(salt: str = "") -> bytes:
    """Where a chain of keys begins. Texts under different salts have no key in common, so they never share a block."""
    return sha256(salt.encode()).digest()


def next_key(before: bytes, ids: Sequence[int]) -> bytes:
    """The key of a block: `before` is the key of the block in front of it, `ids` are its own tokens.

    K and V of a position depend on all tokens up to there, and so does the key. Equal keys are taken for equal texts;
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
    """Blocks that hold so many tokens; the last one may be partly empty."""
    return -(-tokens // block_size)


class BlockPool:
    """Blocks 0 to `num_blocks` - 1: how many hold each, under which key it is known, which free one is taken next.

    All operations raise LessonError for a wrong use, with the pool unchanged.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise LessonError(f"A pool of {num_blocks} blocks of {block_size} tokens: both must be at least 1.")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.epoch = 0  # how often `forget` was called
        self._holders = [0] * num_blocks
        self._key_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free = OrderedDict.fromkeys(range(num_blocks))  # the first is taken next

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, known ones included."""
        return len(self._free)

    @property
    def num_known(self) -> int:
        """Blocks that can be found by their text, held or not."""
        return len(self._block_of)

    def holders(self, block: int) -> int:
        """How many hold this block."""
        return self._holders[block]

    def key(self, block: int) -> bytes | None:
        """The key under which this block is known, if it is."""
        return self._key_of[block]

    def free_blocks(self) -> list[int]:
        """The free blocks, in the order in which they will be taken."""
        return list(self._free)

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks known under these keys, up to the first that isn't: what comes after a gap is of no use."""
        found = []
        for key in keys:
            if key not in self._block_of:
                break
            found.append(self._block_of[key])
        return found

    def hold(self, blocks: Sequence[int]) -> None:
        """One more holder for each of these blocks, which `find` has just given. Free ones are free no longer."""
        for block in blocks:
            self._free.pop(block, None)
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """So many free blocks for new text, those unused for longest. What was in them can't be found any more."""
        if not 0 <= count <= self.num_free:
            raise LessonError(f"{count} blocks can't be taken: {self.num_free} of {self.num_blocks} are free.")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
            key, self._key_of[block] = self._key_of[block], None
            if key is not None:
                del self._block_of[key]
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less for each of these blocks, which are one text in order.

        Its end is let go first and so is taken first: the beginning is what other texts may share. A block that can't
        be found is of no use to anyone, and goes before all that can.
        """
        wrong = [block for block, times in Counter(blocks).items() if times > self._holders[block]]
        if wrong:
            raise LessonError(f"Block {wrong[0]} is released more often than it was taken or held.")
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
                if self._key_of[block] is None:
                    self._free.move_to_end(block, last=False)

    def publish(self, block: int, key: bytes) -> None:
        """From now on this block can be found under this key: K and V of the whole text are in it.

        Where another block is known under the key already, nothing changes: a text has one block to be found, and
        tables that hold the other copy stay as they are.
        """
        if not self._holders[block]:
            raise LessonError(f"Block {block} is free: only a block that someone holds can become known.")
        if self._key_of[block] is None and key not in self._block_of:
            self._key_of[block] = key
            self._block_of[key] = block

    def forget(self) -> None:
        """No block is known any more, as after a change of weights. Holders keep theirs.

        What they go on to compute rests on old blocks. It must not become known under a key that a new text could
        have, so chains of keys begin with `epoch`, which is another one from now on.
        """
        self.epoch += 1
        self._block_of.clear()
        self._key_of = [None] * self.num_blocks

    def check(self, tables: Iterable[Sequence[int]] | None = None) -> None:
        """Raise AssertionError if the pool contradicts itself, or the tables of all its holders where given."""
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
