"""What a policy sees, and what it answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from workbench.types import EngineFigures


class Need(StrEnum):
    """What a policy has to see beyond sessions and counts. What nobody needs does not travel."""

    PROMPT_BLOCKS = "prompt_blocks"
    """:attr:`Turn.blocks`: clients hash their prompts."""
    ENGINE_FIGURES = "engine_figures"
    """:attr:`ReplicaView.engine`: the balancer asks the engines."""
    FULL_REPLICAS = "full_replicas"
    """Candidates without room too; a turn that is sent to one of them waits for it."""


class ReplicaView(Protocol):
    """What a policy may see of a replica."""

    @property
    def replica_id(self) -> str: ...
    @property
    def in_flight(self) -> int:
        """Requests leased out and not released."""
        ...

    @property
    def load(self) -> int:
        """Requests in flight, and those in its engine that came past the balancer."""
        ...

    @property
    def in_flight_tokens(self) -> int:
        """Prompt tokens of those requests."""
        ...

    @property
    def queued(self) -> int:
        """Turns that wait for room on this replica and no other."""
        ...

    @property
    def num_sessions(self) -> int:
        """Sessions pinned to it."""
        ...

    @property
    def engine(self) -> EngineFigures | None:
        """What its engine last reported; None unless the policy needs it, or before the first."""
        ...


@dataclass(slots=True)
class Turn:
    """The turn that needs a replica, and its session so far."""

    session_id: str
    prompt_tokens: int = 0
    blocks: tuple[int, ...] = ()
    """Chained hashes of the prompt's full blocks; see :mod:`workbench.routing.prefix`."""
    context_tokens: int = 0
    """Prompt and sampled tokens of the session's last turn: what its replica has in its cache."""
    moves: int = 0
    """How often policies have moved the session from a replica that was ready."""
    turns_here: int = 0
    """Turns since it came to the replica it is pinned to."""


class Candidates(Sequence[ReplicaView]):
    """The replicas that can take the turn now, in the order in which they were added.

    Never empty. A sequence, with the one question answered that would cost a look at each.
    """

    @abstractmethod
    def least_loaded(self) -> ReplicaView:
        """Fewest requests in flight; ties by fewest sessions, then by chance. Takes O(log n)."""


class Policy(Protocol):
    """Chooses a replica for a turn. Only :meth:`choose` is required of a class of one's own.

    One with a method ``forget(replica_id)`` is told when a replica left or its engine died.
    """

    name: str
    """Shown in snapshots; the class's name where it is missing."""
    needs: frozenset[Need]
    """Nothing where it is missing."""
    margin: int | None
    """Local turns: while a pinned replica has no more requests in flight than the least loaded one
    plus this, clients start further turns of its sessions without asking. None: always, until a
    replica comes or goes. A policy without this attribute is asked for every turn."""

    def choose(self, turn: Turn, pinned: ReplicaView | None, candidates: Candidates) -> ReplicaView:
        """The replica for this turn: one of ``candidates``, or ``pinned``.

        Args:
            turn: the turn, and its session so far.
            pinned: the replica of the session's last turn while it is ready, else None. It may
                be full, and is then not among the candidates: choosing it means to wait for it.
            candidates: the ready replicas that have room.
        """
        ...
