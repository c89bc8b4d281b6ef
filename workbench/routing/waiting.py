"""Turns that wait for a replica: the lowest priority number first, then in order of arrival."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import TYPE_CHECKING

from workbench.errors import NoReplicaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.routing.messages import Want


class WaitingLine:
    """Who waits. A turn that waits for one full replica lets those behind it pass."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._heap: list[tuple[int, int, str, Want]] = []
        self.waiting: dict[tuple[str, int], Want] = {}
        """By owner and lease id."""
        self._per_owner: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, owner: str, want: Want) -> None:
        """Take a place at the end of the line of its priority; idempotent."""
        key = owner, want.lease_id
        if key not in self.waiting:
            self.waiting[key] = want
            self._per_owner[owner] += 1
            heapq.heappush(self._heap, (want.priority, next(self._numbers), owner, want))

    def remove(self, owner: str, lease_id: int) -> bool:
        """Leave the line; whether it was in it."""
        if self.waiting.pop((owner, lease_id), None) is None:
            return False
        self._per_owner[owner] -= 1
        return True

    def remove_owner(self, owner: str) -> None:
        """Forget all that one client waits for."""
        if self._per_owner.pop(owner, 0):
            for key in [key for key in self.waiting if key[0] == owner]:
                del self.waiting[key]

    def waits(self, owner: str) -> bool:
        """Whether a client waits for something."""
        return self._per_owner[owner] > 0

    def serve(self, grant: Callable[[str, Want], None], any_open: Callable[[], bool]) -> None:
        """Offer each in turn to ``grant`` while ``any_open``.

        ``grant`` raises :class:`NoReplicaError` for a turn that has to go on waiting.
        """
        passed: list[tuple[int, int, str, Want]] = []
        while self._heap and any_open():
            place = heapq.heappop(self._heap)
            _, _, owner, want = place
            if self.waiting.get((owner, want.lease_id)) is not want:
                continue  # it left the line
            try:
                grant(owner, want)
            except NoReplicaError:
                passed.append(place)
                continue
            self.remove(owner, want.lease_id)
        for place in passed:
            heapq.heappush(self._heap, place)

    def empty(self) -> list[tuple[str, Want]]:
        """Send everybody away; who that was."""
        gone = [(owner, want) for (owner, _), want in self.waiting.items()]
        self.waiting.clear()
        self._per_owner.clear()
        self._heap.clear()
        return gone
