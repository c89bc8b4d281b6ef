"""Policies that look at the moment only: every turn goes where it suits now, pin or no pin.

None has a ``margin``: they are asked for every turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.routing.policies.base import Policy

if TYPE_CHECKING:
    import random

    from workbench.routing.policies.base import Candidates, Need, ReplicaView, Turn


class LeastLoaded(Policy):
    """Fewest requests in flight; ties by fewest sessions, then by chance.

    Counting sessions on ties spreads conversations that are opened while everything is idle:
    by requests alone they would all look alike.
    """

    name = "least-loaded"
    needs: frozenset[Need] = frozenset()

    def choose(
        self,
        turn: Turn,  # noqa: ARG002 - part of the protocol
        pinned: ReplicaView | None,  # noqa: ARG002 - part of the protocol
        candidates: Candidates,
    ) -> ReplicaView:
        """The least loaded of ``candidates``."""
        return candidates.least_loaded()


class RoundRobin(Policy):
    """One after the other, in the order in which they were added."""

    name = "round-robin"
    needs: frozenset[Need] = frozenset()

    def __init__(self) -> None:
        self._num_turns = 0

    def choose(
        self,
        turn: Turn,  # noqa: ARG002 - part of the protocol
        pinned: ReplicaView | None,  # noqa: ARG002 - part of the protocol
        candidates: Candidates,
    ) -> ReplicaView:
        """The next of ``candidates``."""
        chosen = candidates[self._num_turns % len(candidates)]
        self._num_turns += 1
        return chosen


class Random(Policy):
    """Any, all equally likely."""

    name = "random"
    needs: frozenset[Need] = frozenset()

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(
        self,
        turn: Turn,  # noqa: ARG002 - part of the protocol
        pinned: ReplicaView | None,  # noqa: ARG002 - part of the protocol
        candidates: Candidates,
    ) -> ReplicaView:
        """One of ``candidates`` by chance."""
        return self._rng.choice(candidates)


class PowerOfTwo(Policy):
    """Of two by chance the one with fewer requests in flight.

    Nearly as even as the least loaded, and no herd runs to one replica while its count is stale.
    """

    name = "power-of-two"
    needs: frozenset[Need] = frozenset()

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(
        self,
        turn: Turn,  # noqa: ARG002 - part of the protocol
        pinned: ReplicaView | None,  # noqa: ARG002 - part of the protocol
        candidates: Candidates,
    ) -> ReplicaView:
        """The less loaded of two; either one when they are even."""
        count = len(candidates)
        if count == 1:
            return candidates[0]
        one = self._rng.randrange(count)
        other = (one + self._rng.randrange(1, count)) % count
        return min(candidates[one], candidates[other], key=lambda view: view.load)
