"""The replicas that can take a request now, with the least loaded one at hand.

A heap over (load, sessions, chance), brought up to date only when it is asked: what
changed since then is only remembered, so that a turn on a pin costs next to nothing here.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, overload

from workbench.routing.policies.base import Candidates
from workbench.types import ReplicaState

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from workbench.routing.entries import ReplicaEntry

SLACK = 64
"""Stale heap entries that are put up with, beside three for each replica."""


class OpenReplicas(Candidates):
    """Kept by the routing table, which says what changed.

    ``with_full``: list the ready replicas that have no room too.
    """

    def __init__(
        self, replicas: dict[str, ReplicaEntry], rng: random.Random, *, with_full: bool = False
    ) -> None:
        self._all = replicas
        self._rng = rng
        self._with_full = with_full
        self._listed: list[ReplicaEntry] | None = None
        self.num_open = 0
        """Replicas that have room."""
        self._heap: list[tuple[int, int, float, int, ReplicaEntry]] = []
        self._changed: dict[ReplicaEntry, None] = {}  # in order: chance has to be repeatable
        self._stamps = 0
        self.touch: Callable[[ReplicaEntry], None] = self._changed.setdefault
        """Call it with a replica whose counts changed, but not whether it is open."""

    def settle(self, replica: ReplicaEntry) -> None:
        """A replica came or went, or may be open or shut now."""
        self.num_open += replica.open - replica.was_open
        replica.was_open = replica.open
        self._listed = None
        self._changed[replica] = None

    def least_loaded(self) -> ReplicaEntry:
        """See :class:`Candidates`; a full one only when all are."""
        heap = self._heap
        if self._changed:
            self._push_changed(heap)
        while heap:
            *_, stamp, replica = heap[0]
            if stamp == replica.index_stamp and replica.open:
                return replica
            heapq.heappop(heap)
        ready = [r for r in self._all.values() if r.state is ReplicaState.READY]
        return min(ready, key=lambda r: (r.load, r.num_sessions))

    def _push_changed(self, heap: list[tuple[int, int, float, int, ReplicaEntry]]) -> None:
        if len(heap) > 4 * len(self._all) + SLACK:
            heap.clear()
            self._changed.clear()
            self._changed.update((replica, None) for replica in self._all.values() if replica.open)
        chance = self._rng.random
        many = len(self._changed) > len(heap)
        for replica in self._changed:
            self._stamps += 1
            replica.index_stamp = self._stamps
            entry = (
                replica.in_flight + replica.external,
                replica.num_sessions,
                chance(),
                self._stamps,
                replica,
            )
            if many:
                heap.append(entry)
            else:
                heapq.heappush(heap, entry)
        if many:
            heapq.heapify(heap)
        self._changed.clear()

    def _listing(self) -> Sequence[ReplicaEntry]:
        if self._listed is None:
            self._listed = list(self._eligible())
        return self._listed

    def _eligible(self) -> Iterable[ReplicaEntry]:
        for replica in self._all.values():
            if replica.state is ReplicaState.READY and (self._with_full or replica.open):
                yield replica

    def __len__(self) -> int:
        return len(self._listing())

    @overload
    def __getitem__(self, index: int) -> ReplicaEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReplicaEntry]: ...
    def __getitem__(self, index: int | slice) -> ReplicaEntry | Sequence[ReplicaEntry]:
        return self._listing()[index]

    def __iter__(self) -> Iterator[ReplicaEntry]:
        return iter(self._listing())
