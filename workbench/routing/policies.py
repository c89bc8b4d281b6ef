"""Routing policies: given a session and the replicas that may take it, name one.

A policy is a small object with one method. It keeps no books (the routing table does) and does
no I/O, so that the same object runs in a Ray actor, in a test and in a simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from workbench.errors import ConfigError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence


class ReplicaView(Protocol):
    """What a policy may see of a replica."""

    @property
    def replica_id(self) -> str: ...
    @property
    def in_flight(self) -> int:
        """Requests leased out and not released."""
        ...

    @property
    def num_sessions(self) -> int:
        """Sessions pinned to it."""
        ...


class Policy(Protocol):
    """Chooses among ``candidates``, which are ready and never empty."""

    name: str

    def choose(
        self, session_id: str, pinned: ReplicaView | None, candidates: Sequence[ReplicaView]
    ) -> ReplicaView:
        """The replica for the next turn of ``session_id``.

        Args:
            session_id: the conversation.
            pinned: the replica of its last turn, if that one is among the candidates.
            candidates: the replicas that are ready, in the order in which they were added.
        """
        ...


class LeastLoaded:
    """Fewest requests in flight; ties by fewest sessions, then by chance.

    Counting sessions on ties spreads conversations that are opened while everything is idle:
    by requests alone they would all look alike.
    """

    name = "least-loaded"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(
        self,
        session_id: str,  # noqa: ARG002 - part of the protocol
        pinned: ReplicaView | None,  # noqa: ARG002 - part of the protocol
        candidates: Sequence[ReplicaView],
    ) -> ReplicaView:
        """The least loaded of ``candidates``."""
        best = min((c.in_flight, c.num_sessions) for c in candidates)
        ties = [c for c in candidates if (c.in_flight, c.num_sessions) == best]
        return ties[0] if len(ties) == 1 else self._rng.choice(ties)


class StickyLeastLoaded:
    """A conversation stays where its KV cache is; a new one goes to the least loaded replica."""

    name = "sticky-least-loaded"

    def __init__(self, rng: random.Random) -> None:
        self._first_touch = LeastLoaded(rng)

    def choose(
        self, session_id: str, pinned: ReplicaView | None, candidates: Sequence[ReplicaView]
    ) -> ReplicaView:
        """The pinned replica while it is ready, else the least loaded."""
        return pinned or self._first_touch.choose(session_id, None, candidates)


POLICIES: dict[str, Callable[[random.Random], Policy]] = {
    policy.name: policy for policy in (StickyLeastLoaded, LeastLoaded)
}
"""The policies that can be chosen by name."""


def make_policy(name: str, rng: random.Random) -> Policy:
    """The policy called ``name``.

    Raises:
        ConfigError: there is none; lists those there are.
    """
    if name not in POLICIES:
        raise ConfigError("policy", f"unknown policy {name!r}", allowed=sorted(POLICIES))
    return POLICIES[name](rng)
