"""Which replica was sent which prompt prefix, by hashes of blocks.

A block's hash covers every token up to its end, so that equal hashes mean equal prefixes and a
prompt's blocks can be looked up one by one. Clients hash, the balancer compares: prompts need not
travel for a replica to be chosen.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_TOKENS = 32
"""Tokens per block: two of the engines' own of 16, for finer ones find little more at twice the
work."""

HASH_BYTES = 8
"""Bytes per hash: that any two of 200,000 blocks meet has a chance of one in a billion."""

MAX_BLOCKS = 200_000
"""Blocks remembered over all replicas: 6.4 million tokens, in about 30 MB."""


def block_hashes(prompt_ids: Sequence[int]) -> tuple[int, ...]:
    """Hashes of the prompt's prefixes that end with a full block, the shortest first.

    The same in every process and on every machine, since clients hash and the balancer compares.
    """
    tokens = array("q", prompt_ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    data = memoryview(tokens).cast("B")
    step = BLOCK_TOKENS * tokens.itemsize
    prefix = blake2b(digest_size=HASH_BYTES)
    hashes = []
    for end in range(step, len(data) + 1, step):
        prefix.update(data[end - step : end])
        hashes.append(int.from_bytes(prefix.digest(), "little"))
    return tuple(hashes)


class PrefixIndex:
    """Remembers who was sent which blocks, and forgets what was longest of no use.

    It is a guess at the engines' caches: what they evict or reset, it does not hear of.

    Invariants: at most ``max_blocks`` blocks are held, a block counting once per replica that has
    it; a replica is known exactly while it has at least one.
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        if max_blocks < 1:
            raise ConfigError("max_blocks", f"{max_blocks} is too small", allowed="1 or more")
        self._max_blocks = max_blocks
        # Replicas as bits of one int per block: a set per block would take five times the memory.
        self._holders: OrderedDict[int, int] = OrderedDict()
        self._bits: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._counts: dict[int, int] = {}
        self._num_held = 0

    def __len__(self) -> int:
        """Blocks held, over all replicas."""
        return self._num_held

    def match(self, blocks: Sequence[int]) -> dict[str, int]:
        """How many of the leading blocks each replica has; without those that have none."""
        held: dict[str, int] = {}
        having_all = -1
        for depth, block in enumerate(blocks):
            having_more = having_all & self._holders.get(block, 0)
            if having_more != having_all:
                if depth:
                    held.update((name, depth) for name in self._named(having_all ^ having_more))
                having_all = having_more
                if not having_all:
                    return held
        if blocks:
            held.update((name, len(blocks)) for name in self._named(having_all))
        return held

    def insert(self, blocks: Sequence[int], replica_id: str) -> None:
        """The replica was sent a prompt with these blocks."""
        if not blocks:
            return
        bit = self._bits.get(replica_id) or self._add(replica_id)
        # From the end, so that a prompt's tail is forgotten first: without its head it is useless.
        for block in reversed(blocks):
            holders = self._holders.get(block, 0)
            if not holders & bit:
                self._holders[block] = holders | bit
                self._counts[bit] += 1
                self._num_held += 1
            self._holders.move_to_end(block)
        while self._num_held > self._max_blocks:
            _, holders = self._holders.popitem(last=False)
            self._discount(holders)

    def forget(self, replica_id: str) -> None:
        """The replica is gone, or its cache is."""
        bit = self._bits.get(replica_id, 0)
        for block in [block for block, holders in self._holders.items() if holders & bit]:
            self._holders[block] ^= bit
            if not self._holders[block]:
                del self._holders[block]
            self._discount(bit)

    def _add(self, replica_id: str) -> int:
        bit = 1
        while bit in self._names:
            bit <<= 1
        self._bits[replica_id], self._names[bit], self._counts[bit] = bit, replica_id, 0
        return bit

    def _discount(self, holders: int) -> None:
        """One block less for each of the holders; who has none left makes room for others."""
        for name in self._named(holders):
            bit = self._bits[name]
            self._num_held -= 1
            self._counts[bit] -= 1
            if not self._counts[bit]:
                del self._bits[name], self._names[bit], self._counts[bit]

    def _named(self, holders: int) -> list[str]:
        names = []
        while holders:
            bit = holders & -holders
            names.append(self._names[bit])
            holders ^= bit
        return names
