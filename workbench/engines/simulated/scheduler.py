"""Who runs in the next step, on which blocks, and how long it takes. Pure and synchronous.

After vLLM: running requests come first, the first in order (by priority, then arrival) before the
others. Where one of them finds no block for its next token, the last in order is preempted: its
blocks are given back, and it waits to be computed anew. Only a step without a preemption admits,
from the front of the queue as far as there are places and blocks. A prompt is computed in one step.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.engines.simulated.cache import Block, BlockCache

if TYPE_CHECKING:
    from workbench.engines.simulated.args import SimulatedArgs


@dataclass(slots=True, eq=False)
class Sequence:
    """One request: its tokens, and the blocks that it holds while it runs."""

    request_id: str
    tokens: list[int]
    """The prompt, and what was sampled; whoever samples appends."""
    priority: int = 0
    arrival: int = 0
    prompt_tokens: int = field(init=False)
    running: bool = False
    cached_tokens: int | None = None
    """Prompt tokens that were in the cache when it was first admitted; None before that."""
    num_preempted: int = 0
    blocks: list[Block] = field(default_factory=list)
    root: bytes = b""
    """Salt of the keys: the policy version under which it was last admitted."""
    keys: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.priority, sequence.arrival


def _salt(version: int) -> bytes:
    return f"version {version}/".encode()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the batch."""

    running: tuple[Sequence, ...]
    """Each gets one token at the step's end."""
    admitted: tuple[Sequence, ...]
    prefill_tokens: int
    duration_s: float


class Scheduler:
    """The batch, the queue and the cache of one engine."""

    def __init__(self, args: SimulatedArgs) -> None:
        self._args = args
        self.cache = BlockCache(args.kv_blocks)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._arrivals = 0
        self._root = _salt(0)
        self.prompt_tokens = self.cached_prompt_tokens = self.num_preempted = 0

    @property
    def busy(self) -> bool:
        """Whether anybody runs or waits."""
        return bool(self.running or self.waiting)

    def add(self, sequence: Sequence) -> None:
        """Put a request into the queue."""
        sequence.arrival, self._arrivals = self._arrivals, self._arrivals + 1
        insort(self.waiting, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        """A request has ended or is no longer wanted; its full blocks can be reused."""
        place = self.running if sequence.running else self.waiting
        del place[bisect_left(place, _order(sequence), key=_order)]
        self._give_back(sequence)

    def schedule(self, *, admit: bool = True) -> Step:
        """Make the next step; whoever runs in it is to get one token, or to be removed.

        Args:
            admit: whether those that wait may come in.
        """
        preempted = self._grow_all()
        admitted, prefill = self._admit_all() if admit and not preempted else ([], 0)
        args = self._args
        duration_s = (
            args.step_s
            + args.step_s_per_request * len(self.running)
            + args.prefill_s_per_token * prefill
        )
        return Step(tuple(self.running), tuple(admitted), prefill, duration_s)

    def set_version(self, version: int, *, recompute: bool = False) -> None:
        """Salt the cache: those that are admitted from now on reuse blocks of this version only.

        Requests that run go on over their own blocks. With ``recompute`` all blocks are dropped
        instead, and whoever runs is preempted.
        """
        self._root = _salt(version)
        if recompute:
            while self.running:
                self._preempt_last()
            self.cache.clear()

    def _grow_all(self) -> bool:
        """A place for each running request's next token; whether anybody was preempted for it."""
        before, done = self.num_preempted, 0
        while done < len(self.running):
            if self._grow(self.running[done]):
                done += 1
            else:
                self._preempt_last()
        return self.num_preempted > before

    def _grow(self, sequence: Sequence) -> bool:
        count, size = len(sequence.tokens), self._args.block_tokens
        if count > len(sequence.blocks) * size:
            blocks = self.cache.acquire((), 1)
            if blocks is None:
                return False
            sequence.blocks += blocks
        if count % size == 0:
            self._register(sequence, count // size - 1)
        return True

    def _preempt_last(self) -> None:
        sequence = self.running.pop()
        self._give_back(sequence)
        sequence.num_preempted += 1
        self.num_preempted += 1
        insort(self.waiting, sequence, key=_order)

    def _give_back(self, sequence: Sequence) -> None:
        self.cache.release(sequence.blocks)
        sequence.blocks = []
        sequence.running = False

    def _admit_all(self) -> tuple[list[Sequence], int]:
        admitted: list[Sequence] = []
        prefill = 0
        while self.waiting and len(self.running) < self._args.max_num_seqs:
            sequence = self.waiting[0]
            cached = self._admit(sequence)
            if cached is None:
                break
            self.waiting.pop(0)
            insort(self.running, sequence, key=_order)
            admitted.append(sequence)
            prefill += len(sequence.tokens) - cached
        return admitted, prefill

    def _admit(self, sequence: Sequence) -> int | None:
        """Take blocks for all its tokens; how many tokens were cached, or None without blocks."""
        count, size = len(sequence.tokens), self._args.block_tokens
        if sequence.root != self._root:
            sequence.root = self._root
            sequence.keys.clear()
        # The last token is always computed: the next one is sampled from what comes out of it.
        hits = self.cache.match(self._keys(sequence, (count - 1) // size))
        blocks = self.cache.acquire(hits, -(-count // size) - len(hits))
        if blocks is None:
            return None
        sequence.blocks = blocks
        sequence.running = True
        self._register(sequence, len(hits))
        cached = len(hits) * size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = cached
            self.prompt_tokens += sequence.prompt_tokens
            self.cached_prompt_tokens += cached
        return cached

    def _register(self, sequence: Sequence, start: int) -> None:
        """Make its full blocks from number ``start`` on known to others, even of the same step."""
        full = len(sequence.tokens) // self._args.block_tokens
        keys = self._keys(sequence, full)
        for block, key in zip(sequence.blocks[start:], keys[start:], strict=False):
            self.cache.register(block, key)

    def _keys(self, sequence: Sequence, count: int) -> list[bytes]:
        """Keys of its first ``count`` blocks, each hashed with the one before; none if unused."""
        if not self._args.prefix_caching:
            return []
        keys, size = sequence.keys, self._args.block_tokens
        while len(keys) < count:
            tokens = sequence.tokens[len(keys) * size : (len(keys) + 1) * size]
            parent = keys[-1] if keys else sequence.root
            keys.append(
                hashlib.blake2b(parent + array("q", tokens).tobytes(), digest_size=16).digest()
            )
        return keys[:count]

    def check(self) -> None:
        """Raise where a limit is broken or the books do not add up."""
        args = self._args
        self.cache.check()
        holders = Counter(block for sequence in self.running for block in sequence.blocks)
        assert len(holders) == self.cache.referenced
        assert all(block.references == count for block, count in holders.items())
        assert len(self.running) <= args.max_num_seqs
        for place, is_running in ((self.running, True), (self.waiting, False)):
            assert place == sorted(place, key=_order)
            assert all(sequence.running is is_running for sequence in place)
        assert not any(sequence.blocks for sequence in self.waiting)
        for sequence in self.running:
            assert sequence.cached_tokens is not None
            assert sequence.cached_tokens <= sequence.prompt_tokens - 1
            held = len(sequence.blocks) * args.block_tokens
            assert held >= len(sequence.tokens) - 1  # the newest is computed in the next step
            assert held - len(sequence.tokens) < args.block_tokens
