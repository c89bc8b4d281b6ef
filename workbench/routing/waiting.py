"""Turns that wait for a replica: the lowest priority number first, then in order of arrival.

A turn that waits for one full replica lets those behind it pass, and waits apart: for that replica
alone, until it has room. Every so often all are offered anew, for a policy may think better of it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from workbench.errors import NoReplicaError
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from workbench.routing.entries import ReplicaEntry
    from workbench.routing.messages import Want

REPEATS = 32
"""Turns told to wait for a full replica that are offered anew per pass, on average: up to so many
in each pass, of more all in every n-th pass."""


class _Place:
    __slots__ = ("order", "owner", "replica", "want")

    def __init__(self, order: tuple[int, int], owner: str, want: Want) -> None:
        self.order = order
        self.owner = owner
        self.want = want
        self.replica: ReplicaEntry | None = None
        """The full one that it waits for."""


_order = attrgetter("order")


class WaitingLine:
    """Who waits, for one of ``replicas``, and how many of them for each replica alone."""

    def __init__(self, replicas: Mapping[str, ReplicaEntry]) -> None:
        self._replicas = replicas
        self._numbers = itertools.count()
        self._line: list[_Place] = []
        """Those who wait for any replica, in order."""
        self._apart: dict[ReplicaEntry, list[_Place]] = {}
        """Those who wait for a full one, in order."""
        self._called: dict[_Place, ReplicaEntry] = {}
        """Within a pass: who stands in the line again, and what they waited for."""
        self._passes = 0
        """Since all were offered anew."""
        self.waiting: dict[tuple[str, int], _Place] = {}
        """By owner and lease id."""
        self._per_owner: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def apart(self) -> int:
        """How many wait for one full replica."""
        return len(self.waiting) - len(self._line)

    def add(self, owner: str, want: Want) -> None:
        """Take a place at the end of the line of its priority; idempotent."""
        key = owner, want.lease_id
        if key not in self.waiting:
            place = self.waiting[key] = _Place((want.priority, next(self._numbers)), owner, want)
            self._per_owner[owner] += 1
            insort(self._line, place, key=_order)

    def remove(self, owner: str, lease_id: int) -> bool:
        """Leave the line; whether it was in it."""
        place = self.waiting.get((owner, lease_id))
        if place is None:
            return False
        if place.replica is None:
            _take(self._line, place)
        else:
            _take(self._apart[place.replica], place)
            place.replica.queued -= 1
        self._forget(place)
        return True

    def remove_owner(self, owner: str) -> None:
        """Forget all that one client waits for."""
        if self._per_owner[owner]:
            for _, lease_id in [key for key in self.waiting if key[0] == owner]:
                self.remove(owner, lease_id)

    def waits(self, owner: str) -> bool:
        """Whether a client waits for something."""
        return owner in self._per_owner

    def _forget(self, place: _Place) -> None:
        del self.waiting[place.owner, place.want.lease_id]
        self._per_owner[place.owner] -= 1
        if not self._per_owner[place.owner]:
            del self._per_owner[place.owner]

    # -- serving ----------------------------------------------------------------------------

    def serve(
        self,
        grant: Callable[[str, Want], None],
        any_open: Callable[[], bool],
        *,
        anew: bool = False,
    ) -> None:
        """Offer turns in their order to ``grant`` while ``any_open``.

        ``grant`` raises :class:`NoReplicaError` for a turn that has to go on waiting. One that
        waits for a replica which is still full is offered now and then only, and if ``anew``.
        """
        self._call(anew=anew)
        passed: list[_Place] = []
        while self._line and any_open():
            place = self._line.pop(0)
            waited_for = self._called.pop(place, None)
            try:
                grant(place.owner, place.want)
            except NoReplicaError as error:
                replica = self._replicas.get(error.replica_id or "")
                if replica is not None and _is_full(replica):
                    self._set_apart(place, replica)
                else:
                    passed.append(place)
            else:
                self._forget(place)
            if waited_for is not None:
                self._call_next(waited_for)
        self._line[:0] = passed  # offered in order, so that they come before all that were not
        self._send_back()

    def _call(self, *, anew: bool) -> None:
        """Back into the line: all, or who waits first for a replica that is not full any more."""
        self._passes += 1
        if not anew and self._passes * REPEATS < self.apart:
            for replica in list(self._apart):
                self._call_next(replica)
            return
        self._passes = 0
        for replica, places in self._apart.items():
            replica.queued = 0
            for place in places:
                place.replica = None
                self._called[place] = replica
        self._apart.clear()
        self._line.extend(self._called)
        self._line.sort(key=_order)

    def _call_next(self, replica: ReplicaEntry) -> None:
        """The first that waits for a replica, unless it is full, stands in the line again.

        So that each has its turn in the order of all, and nobody who waits for it is ahead.
        """
        places = self._apart.get(replica)
        if places and not _is_full(replica):
            place = places.pop(0)
            place.replica = None
            self._called[place] = replica
            insort(self._line, place, key=_order)
            replica.queued = 0
        else:
            replica.queued = len(places or ())
            if not places:
                self._apart.pop(replica, None)

    def _set_apart(self, place: _Place, replica: ReplicaEntry) -> None:
        place.replica = replica
        insort(self._apart.setdefault(replica, []), place, key=_order)
        replica.queued += 1

    def _send_back(self) -> None:
        """Those whom nothing could be offered wait for what they waited for before."""
        for place, replica in self._called.items():
            if _is_full(replica):
                _take(self._line, place)
                self._set_apart(place, replica)
        for replica in set(self._called.values()):
            replica.queued = len(self._apart.get(replica, ()))
        self._called.clear()

    def empty(self) -> list[tuple[str, Want]]:
        """Send everybody away; who that was."""
        gone = [(place.owner, place.want) for place in self.waiting.values()]
        for replica in self._apart:
            replica.queued = 0
        for places in (self.waiting, self._per_owner, self._line, self._apart):
            places.clear()
        return gone


def _is_full(replica: ReplicaEntry) -> bool:
    return replica.state is ReplicaState.READY and not replica.open


def _take(places: list[_Place], place: _Place) -> None:
    del places[bisect_left(places, place.order, key=_order)]
