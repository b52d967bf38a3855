"""The pool of blocks: counts, order of reuse, and what can be found. No test takes a fixture: see test_mutants.py."""

from __future__ import annotations

import random
import struct
from hashlib import sha256

import pytest

from llmlesson import LessonError
from llmlesson.batching import block_pool
from llmlesson.batching.block_pool import BlockPool, block_keys, blocks_needed


def state(pool):
    return pool.free_blocks(), [(pool.holders(block), pool.key(block)) for block in range(pool.num_blocks)]


def known(pool, ids, salt=""):
    """Take blocks for a text, publish the full ones, and let go of all. Returns them."""
    keys = block_keys(ids, pool.block_size, salt)
    blocks = pool.take(blocks_needed(len(ids), pool.block_size))
    for block, key in zip(blocks, keys, strict=False):
        pool.publish(block, key)
    pool.release(blocks)
    pool.check()
    return blocks


def test_keys_are_a_chain_of_sha256_over_salt_and_tokens():
    first = sha256(sha256(b"tenant").digest() + struct.pack("=3q", 5, 6, 70_000)).digest()
    second = sha256(first + struct.pack("=3q", 8, 9, 10)).digest()
    assert block_keys([5, 6, 70_000, 8, 9, 10, 11], 3, "tenant") == [first, second]


def test_one_changed_token_changes_its_key_and_all_later_ones_and_none_before():
    ids = list(range(20))
    keys = block_keys(ids, 4)
    for changed in range(20):
        other = block_keys([*ids[:changed], 99, *ids[changed + 1 :]], 4)
        assert [a == b for a, b in zip(keys, other, strict=True)] == [i < changed // 4 for i in range(5)]


def test_a_block_that_is_not_full_has_no_key():
    for tokens in range(10):
        assert len(block_keys(range(tokens), 4)) == tokens // 4


def test_equal_texts_under_different_salts_have_no_key_in_common():
    assert not set(block_keys(range(32), 4, "a")) & set(block_keys(range(32), 4, "b"))


def test_where_a_block_begins_is_part_of_its_key():
    assert len(set(block_keys([7] * 40, 4))) == 10


def test_blocks_needed():
    assert [blocks_needed(tokens, 4) for tokens in (0, 1, 3, 4, 5, 8, 9)] == [0, 1, 1, 1, 2, 2, 3]


def test_blocks_unused_for_longest_are_taken_first():
    pool = BlockPool(4, 1)
    assert pool.take(3) == [0, 1, 2]
    pool.publish(1, b"1")
    pool.publish(0, b"0")
    pool.release([1])
    pool.release([0])
    assert pool.take(3) == [3, 1, 0]


def test_the_end_of_a_text_is_given_up_before_its_beginning():
    pool = BlockPool(4, 1)
    text = known(pool, [5, 6, 7])
    taken = pool.take(1)
    assert taken == [3]  # never used
    assert pool.take(1) == [text[2]]
    assert pool.find(block_keys([5, 6, 7], 1)) == text[:2]


def test_blocks_that_nobody_can_find_are_taken_before_all_known_ones():
    pool = BlockPool(3, 2)
    text = known(pool, [1, 2, 3, 4, 5])
    assert pool.free_blocks() == [text[2], text[1], text[0]]
    other = pool.take(1)
    pool.release(other)
    assert pool.take(1) == other == [text[2]]


def test_taking_a_block_forgets_its_text_at_once():
    pool = BlockPool(2, 1)
    known(pool, [5, 6])
    keys = block_keys([5, 6], 1)
    assert pool.take(1) == [1]
    assert pool.find(keys) == [0]
    assert pool.key(1) is None
    assert pool.num_known == 1
    pool.publish(1, keys[1])  # the same text again, computed anew
    assert pool.find(keys) == [0, 1]
    pool.check()


def test_a_found_block_is_held_and_stays_known():
    pool = BlockPool(2, 1)
    known(pool, [5, 6])
    keys = block_keys([5, 6], 1)
    found = pool.find(keys)
    pool.hold(found)
    assert pool.num_free == 0
    pool.hold(found)
    assert [pool.holders(block) for block in found] == [2, 2]
    pool.release(found)
    assert pool.num_free == 0
    pool.release(found)
    assert pool.num_free == 2
    assert pool.find(keys) == found
    pool.check()


def test_the_search_stops_at_the_first_block_that_is_missing():
    pool = BlockPool(4, 1)
    blocks = pool.take(3)
    keys = block_keys([5, 6, 7], 1)
    pool.publish(blocks[0], keys[0])
    pool.publish(blocks[2], keys[2])
    assert pool.find(keys) == [blocks[0]]
    assert pool.find([]) == []


def test_the_first_of_two_equal_blocks_is_the_one_to_be_found():
    pool = BlockPool(3, 1)
    first, second = pool.take(2)
    pool.publish(first, b"k")
    pool.publish(second, b"k")
    assert pool.find([b"k"]) == [first]
    assert pool.key(second) is None
    pool.release([second])
    assert pool.take(1) == [second]
    assert pool.find([b"k"]) == [first]
    pool.check()


def test_a_known_block_keeps_its_first_key():
    pool = BlockPool(1, 1)
    [block] = pool.take(1)
    pool.publish(block, b"a")
    pool.publish(block, b"b")
    assert (pool.find([b"a"]), pool.find([b"b"])) == ([block], [])
    pool.check()


def test_a_wrong_use_is_refused_and_changes_nothing():
    pool = BlockPool(3, 1)
    known(pool, [5])
    held = pool.take(2)
    before = state(pool)
    free = pool.free_blocks()[0]
    for wrong in (
        lambda: pool.take(2),
        lambda: pool.take(-1),
        lambda: pool.release([held[0], free]),
        lambda: pool.release([held[0], held[0]]),
        lambda: pool.publish(free, b"k"),
    ):
        with pytest.raises(LessonError):
            wrong()
        assert state(pool) == before
    for sizes in ((0, 1), (1, 0)):
        with pytest.raises(LessonError):
            BlockPool(*sizes)


def test_a_full_pool_says_so():
    with pytest.raises(LessonError, match="Can't take 3 blocks: 2 of 2 are free"):
        BlockPool(2, 1).take(3)


def test_forget_makes_every_block_unknown_and_begins_another_epoch():
    pool = BlockPool(3, 1)
    known(pool, [5, 6])
    [block] = pool.take(1)
    pool.publish(block, b"held")
    pool.forget()
    assert pool.num_known == 0
    assert pool.find([*block_keys([5, 6], 1), b"held"]) == []
    assert pool.epoch == 1
    pool.release([block])
    pool.check()
    assert pool.num_free == 3


def test_check_finds_each_kind_of_damage():
    def damaged(change, tables=None):
        pool = BlockPool(3, 1)
        pool.publish(pool.take(2)[0], b"k")
        pool.check([[0, 1]])
        change(pool)
        with pytest.raises(AssertionError):
            pool.check(tables)

    damaged(lambda pool: pool._holders.__setitem__(2, 1))
    damaged(lambda pool: pool._free.pop(2))
    damaged(lambda pool: pool._free.__setitem__(0, None))
    damaged(lambda pool: pool._key_of.__setitem__(0, None))
    damaged(lambda pool: pool._key_of.__setitem__(1, b"other"))
    damaged(lambda pool: pool._block_of.pop(b"k"))
    damaged(lambda pool: None, tables=[[0]])
    damaged(lambda pool: None, tables=[[0, 1], [1]])


def test_a_thousand_random_operations():
    chance = random.Random(3)
    pool = BlockPool(12, 2)
    tables = []
    for _ in range(1000):
        if tables and (pool.num_free < 4 or chance.random() < 0.45):
            pool.release(tables.pop(chance.randrange(len(tables))))
        else:
            ids = [chance.randrange(2) for _ in range(chance.randrange(1, 8))]
            keys = block_keys(ids, 2)
            found = pool.find(keys)
            need = blocks_needed(len(ids), 2) - len(found)
            if need + sum(not pool.holders(block) for block in found) > pool.num_free:
                continue
            pool.hold(found)
            table = found + pool.take(need)
            for block, key in zip(table, keys, strict=False):
                pool.publish(block, key)
            assert [pool.find(keys[: i + 1])[-1] for i in range(len(keys))][: len(found)] == found
            tables.append(table)
        pool.check(tables)
    for table in tables:
        pool.release(table)
    assert pool.num_free == 12


def test_no_python_hash_is_in_the_keys():
    # `hash` of ints can be made to collide at will, and that of a str is another one in every process.
    assert not hasattr(block_pool, "hash")
    assert {len(key) for key in block_keys(range(9), 2)} == {32}
