"""The tests of pool and scheduler catch what could be wrong with them: each of these changes makes one of them fail.

The mutated source is run in place of the real one, and the tests of test_block_pool.py and test_scheduler.py, which
take no fixtures, are called until one fails.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from batching import test_block_pool, test_scheduler

import llmlesson.batching.block_pool
import llmlesson.batching.scheduler
from llmlesson import LessonError

POOL, SCHEDULER = "block_pool", "scheduler"
MODULES = {POOL: llmlesson.batching.block_pool, SCHEDULER: llmlesson.batching.scheduler}

MUTANTS = [
    # keys
    (POOL, "sha256(salt.encode())", 'sha256(b"")'),
    (POOL, "sha256(before + array", "sha256(array"),
    (POOL, "sha256(before + array", "sha256(before[:0] + array"),
    (POOL, 'array("q", ids).tobytes()', "bytes(i % 256 for i in ids)"),
    (POOL, "len(ids) - block_size + 1", "len(ids)"),
    (POOL, "return keys[1:]", "return keys[:-1]"),
    (POOL, "return -(-tokens // block_size)", "return tokens // block_size + 1"),
    # find, hold, take
    (POOL, "                break\n            found.append", "                continue\n            found.append"),
    (POOL, "            self._free.pop(block, None)\n", ""),
    (POOL, "self._holders[block] += 1", "self._holders[block] = 1"),
    (POOL, "self._free.popitem(last=False)", "self._free.popitem()"),
    (POOL, "                del self._block_of[key]", "                pass"),
    (POOL, "key, self._key_of[block] = self._key_of[block], None", "key = self._key_of[block]"),
    (POOL, "0 <= count <= self.num_free", "count <= self.num_free"),
    # release
    (POOL, "for block in reversed(blocks)", "for block in blocks"),
    (POOL, "if self._holders[block] == 0:", "if self._holders[block] <= 1:"),
    (POOL, "self._free.move_to_end(block, last=False)", "pass"),
    (POOL, "if self._key_of[block] is None:\n                    self", "if True:\n                    self"),
    (POOL, "if times > self._holders[block]", "if not self._holders[block]"),
    (POOL, "        if wrong:", "        if False:"),
    # publish, forget
    (POOL, "if self._key_of[block] is None and key not in self._block_of", "if self._key_of[block] is None"),
    (POOL, "if self._key_of[block] is None and key not in self._block_of", "if key not in self._block_of"),
    (POOL, "        if not self._holders[block]:", "        if False:"),
    (POOL, "self.epoch += 1", "pass"),
    (POOL, "self._block_of.clear()", "pass"),
    (POOL, "        self._key_of = [None] * self.num_blocks\n\n    def check", "\n    def check"),
    # add
    (SCHEDULER, "max(max_tokens, len(request.ids))", "max_tokens"),
    (SCHEDULER, "max(max_tokens, len(request.ids))", "len(request.ids)"),
    (SCHEDULER, "if needed > blocks:", "if needed >= blocks:"),
    (SCHEDULER, "if needed > blocks:", "if needed > blocks + 1:"),
    (SCHEDULER, "        self._waiting.append(progress)", "        self._waiting.appendleft(progress)"),
    (SCHEDULER, "request in self._all or request.finish_reason", "request in self._all"),
    # plan
    (
        SCHEDULER,
        "progress.known - progress.computed, budget)\n            preempted",
        "1, budget)\n            preempted",
    ),
    (SCHEDULER, "                budget -= count\n        if not pre", "                pass\n        if not pre"),
    (SCHEDULER, "                budget -= count\n        if self", "                pass\n        if self"),
    (SCHEDULER, "if not preempted and not (", "if not ("),
    (SCHEDULER, " and not (self.static and self._running)", ""),
    (SCHEDULER, " and len(self._running) < self.max_running", ""),
    (SCHEDULER, "len(self._running) < self.max_running", "len(self._running) <= self.max_running"),
    (SCHEDULER, "        if self._all and not shares:", "        if False:"),
    (SCHEDULER, "end == progress.known)", "True)"),
    (SCHEDULER, "end == progress.known)", "end >= len(progress.request.ids))"),
    (SCHEDULER, "tuple(progress.table), end", "tuple(progress.table[:-1]), end"),
    # settle
    (SCHEDULER, "            self._publish(progress)\n", ""),
    (SCHEDULER, "            progress.computed += share.count\n", "            progress.computed = progress.known\n"),
    (SCHEDULER, "            if progress.computed != share.start:", "            if False:"),
    (SCHEDULER, "if share.chooses and share.start", "if False and share.start"),
    (SCHEDULER, " if share.request in self._all]", "]"),
    # room and preemption
    (SCHEDULER, "self._running.pop()", "self._running.pop(0)"),
    (
        SCHEDULER,
        "        progress.table += self.pool.take(missing)",
        "        progress.table = self.pool.take(missing)",
    ),
    (SCHEDULER, "        progress.table, progress.computed = [], 0", "        progress.table = []"),
    (SCHEDULER, "        self.pool.release(progress.table)\n        progress.table", "        progress.table"),
    (SCHEDULER, "self._waiting.appendleft(progress)", "self._waiting.append(progress)"),
    # admission
    (SCHEDULER, "blocks_needed(progress.known, self.pool.block_size) - len(found)", "1"),
    (SCHEDULER, "fresh + revived + reserve", "fresh + reserve"),
    (SCHEDULER, "fresh + revived + reserve", "fresh + revived"),
    (SCHEDULER, "fresh + revived + reserve", "fresh + revived + reserve + 1"),
    (SCHEDULER, "fresh + revived + reserve", "fresh + len(found) + reserve"),
    (SCHEDULER, "sum(len(other.table) < other.most_blocks for", "sum(True for"),
    (SCHEDULER, "        self.pool.hold(found)\n", ""),
    (SCHEDULER, "table = found + self.pool.take(fresh)", "table = self.pool.take(fresh) + found"),
    (SCHEDULER, "        if progress.preemptions:", "        if False:"),
    # what is found and published
    (SCHEDULER, "0, progress.known - 1)", "0, progress.known)"),
    (SCHEDULER, "0, progress.known - 1)", "0, len(progress.request.ids) - 1)"),
    (SCHEDULER, 'first_key(f"{self.pool.epoch} {progress.salt}")', "first_key(progress.salt)"),
    (SCHEDULER, 'first_key(f"{self.pool.epoch} {progress.salt}")', "first_key(str(self.pool.epoch))"),
    (SCHEDULER, "1, progress.computed):", "1, progress.known):"),
    (SCHEDULER, "1, progress.computed):", "1, len(progress.request.ids)):"),
    (SCHEDULER, "progress.table[len(progress.chain) - 1]", "progress.table[-1]"),
    (SCHEDULER, "text = [*progress.request.ids, *progress.request.token_ids]", "text = list(progress.request.ids)"),
    # leaving
    (SCHEDULER, "        self.pool.release(progress.table)\n        del", "        del"),
    (
        SCHEDULER,
        "        if request in self._all:\n            self._leave",
        "        if True:\n            self._leave",
    ),
]


def loaded(name, source):
    module = types.ModuleType(f"llmlesson.batching.{name}")
    exec(compile(source, f"mutated {name}.py", "exec"), module.__dict__)
    return module


def the_tests():
    for module in (test_block_pool, test_scheduler):
        yield from (value for name, value in vars(module).items() if name.startswith("test_"))


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS)
def test_a_mutant_is_caught(name, old, new, monkeypatch):
    sources = {key: Path(module.__file__).read_text(encoding="utf-8") for key, module in MODULES.items()}
    assert sources[name].count(old) == 1, "this line has changed: the mutant must follow"
    sources[name] = sources[name].replace(old, new)
    pool = loaded(POOL, sources[POOL])
    monkeypatch.setitem(sys.modules, pool.__name__, pool)
    scheduler = loaded(SCHEDULER, sources[SCHEDULER])
    for module in (test_block_pool, test_scheduler):
        for mutated, alias in ((pool, "block_pool"), (scheduler, "scheduler_module")):
            if hasattr(module, alias):
                monkeypatch.setattr(module, alias, mutated)
            for key in ("BlockPool", "block_keys", "blocks_needed", "Scheduler"):
                if hasattr(module, key) and hasattr(mutated, key):
                    monkeypatch.setattr(module, key, getattr(mutated, key))
    for test in the_tests():
        try:
            test()
        except (AssertionError, LessonError, LookupError, TypeError, ValueError, pytest.fail.Exception):
            return
    pytest.fail("no test has noticed")
