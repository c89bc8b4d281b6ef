"""The replicas of a pool as its controller has them. Plain state; no call goes out from here."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.types import ReplicaState, ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.supervision import RestartBudget


@dataclass(slots=True, eq=False)
class Member:
    """One replica, from the order to start it until it is taken out of the pool."""

    status: ReplicaStatus
    budget: RestartBudget
    handle: Any = None
    """Its actor; None while it has none."""
    group: Any = None
    """Its placement group."""
    node_id: str = ""
    """Where it runs; empty where it does not."""
    log_node_id: str = ""
    """Where its log is, also once it is gone."""
    is_known: bool = False
    """Whether it serves, or would if nobody had paused it: the balancer has to know it then."""
    wanted: ReplicaState | None = None
    """The state that somebody wants, where that is not for itself to say."""
    is_lost: bool = False
    """Whether its process was found gone or hanging: what it has goes on elsewhere."""
    is_paused: bool = False
    """Whether somebody paused its engine."""
    is_asleep: bool = False
    """Whether its device's memory was given back."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is started, stopped, or taken out."""
    born_s: float = field(default_factory=time.monotonic)

    @property
    def replica_id(self) -> str:
        """Its name."""
        return self.status.replica_id

    def note(self, **changes: Any) -> None:
        """Change what is told of it."""
        self.status = replace(self.status, **changes)


class Members:
    """By id, in the order in which they came. No id is given twice."""

    def __init__(self) -> None:
        self._all: dict[str, Member] = {}
        self._made = 0

    def make(self, budget: RestartBudget) -> Member:
        """One more, which has nothing yet."""
        replica_id = f"replica-{self._made}"
        self._made += 1
        status = ReplicaStatus(replica_id, ReplicaState.STARTING, "waiting for its place")
        member = self._all[replica_id] = Member(status, budget)
        return member

    def forget(self, member: Member) -> None:
        """It is not in the pool any more. Idempotent."""
        self._all.pop(member.replica_id, None)

    def get(self, replica_id: str) -> Member:
        """One of them.

        Raises:
            ConfigError: unknown; lists those that there are.
        """
        if replica_id not in self._all:
            raise ConfigError("replica_id", f"{replica_id!r}", allowed=sorted(self._all))
        return self._all[replica_id]

    def some(self, replica_ids: str | list[str] | None) -> list[Member]:
        """Those named, or all.

        Raises:
            ConfigError: one of them is unknown.
        """
        if replica_ids is None:
            return list(self._all.values())
        named = [replica_ids] if isinstance(replica_ids, str) else replica_ids
        return [self.get(replica_id) for replica_id in dict.fromkeys(named)]

    def ready(self) -> list[Member]:
        """Those that serve."""
        return [member for member in self._all.values() if member.is_known]

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, member: object) -> bool:
        return isinstance(member, Member) and self._all.get(member.replica_id) is member
