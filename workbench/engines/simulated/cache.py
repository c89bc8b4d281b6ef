"""The KV cache as blocks: referenced, resting (full, and reusable until evicted), or free."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True, eq=False)
class Block:
    """The KV of ``block_tokens`` tokens in a row."""

    references: int = 1
    key: bytes | None = None
    """Under which it can be found: it stands for its tokens and all before them."""


class BlockCache:
    """Counts blocks and finds them again; ``total`` None is no limit.

    Blocks without references rest in the order in which they were given back, the tail of a
    request before its head, and are evicted from the front.
    """

    def __init__(self, total: int | None) -> None:
        self._limited = total is not None
        self.total = sys.maxsize if total is None else total
        self.free = self.total
        self.referenced = 0
        self.num_evicted = 0
        self._resting: OrderedDict[bytes, Block] = OrderedDict()
        self._by_key: dict[bytes, Block] = {}

    @property
    def resting(self) -> int:
        """Blocks that nobody references and that can be reused."""
        return len(self._resting)

    @property
    def usage(self) -> float:
        """Share of the blocks that are referenced; 0 without a limit."""
        return self.referenced / self.total if self._limited else 0.0

    def match(self, keys: Iterable[bytes]) -> list[Block]:
        """The blocks of the longest run of ``keys`` that is there. Nothing is taken."""
        hits = []
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            hits.append(block)
        return hits

    def acquire(self, hits: Sequence[Block], fresh: int) -> list[Block] | None:
        """Take the blocks that were found and ``fresh`` empty ones; None if there are too few."""
        woken = [block for block in hits if not block.references]
        if fresh > self.free + len(self._resting) - len(woken):
            return None
        for block in woken:
            assert block.key is not None
            del self._resting[block.key]
        for block in hits:
            block.references += 1
        evicted = max(0, fresh - self.free)
        self.free -= fresh - evicted
        self.num_evicted += evicted
        for _ in range(evicted):
            key, _ = self._resting.popitem(last=False)
            del self._by_key[key]
        self.referenced += len(woken) + fresh
        return [*hits, *(Block() for _ in range(fresh))]

    def register(self, block: Block, key: bytes) -> None:
        """A referenced block is full. One whose like is known already stays private."""
        if self._by_key.setdefault(key, block) is block:
            block.key = key

    def release(self, blocks: Sequence[Block]) -> None:
        """Give blocks back, those of one request in their order."""
        for block in reversed(blocks):
            block.references -= 1
            if block.references:
                continue
            self.referenced -= 1
            if block.key is None:
                self.free += 1
            else:
                self._resting[block.key] = block

    def clear(self) -> None:
        """Forget every block's content; those that are referenced stay so."""
        for block in self._by_key.values():
            block.key = None
        self.free += len(self._resting)
        self._by_key.clear()
        self._resting.clear()

    def check(self) -> None:
        """Raise where the books do not add up."""
        assert self.referenced + self.resting + self.free == self.total
        assert min(self.referenced, self.free) >= 0
        for key, block in self._by_key.items():
            assert block.key == key
            assert (block.references == 0) == (key in self._resting)
        assert self._resting.keys() <= self._by_key.keys()
