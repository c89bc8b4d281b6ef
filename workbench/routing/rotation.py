"""The replicas of a routing table: which there are, which may take work, and how well they do."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, NoReplicaError
from workbench.routing import health
from workbench.routing.candidates import OpenReplicas
from workbench.routing.entries import ReplicaEntry
from workbench.routing.messages import Outcome
from workbench.routing.policies.base import Need
from workbench.types import EventKind, ReplicaState

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from workbench.config import RoutingConfig
    from workbench.routing.journal import Journal
    from workbench.routing.policies.base import Policy
    from workbench.types import EngineFigures

NAMED_REPLICAS = 16
"""Replicas whose situation an error tells."""


class Rotation:
    """Replica id → entry, in the order in which they were added."""

    def __init__(
        self, policy: Policy, rules: RoutingConfig, journal: Journal, rng: random.Random
    ) -> None:
        self._rules = rules
        self._journal = journal
        self.entries: dict[str, ReplicaEntry] = {}
        self.starting: frozenset[str] = frozenset()
        """Replicas that are about to come."""
        self.needs: frozenset[Need] = getattr(policy, "needs", frozenset())
        self.candidates = OpenReplicas(
            self.entries, rng, with_full=Need.FULL_REPLICAS in self.needs
        )
        self._forget: Callable[[str], None] = getattr(policy, "forget", _nothing)
        self._margin: int | None = getattr(policy, "margin", None)
        self.local_turns = hasattr(policy, "margin") and rules.capacity is None

    def add(self, replica_id: str, state: ReplicaState = ReplicaState.READY) -> None:
        """Take a replica in.

        Raises:
            ConfigError: it is there already (re-adding would forget its counts).
        """
        if replica_id in self.entries:
            raise ConfigError("replica_id", f"{replica_id!r} is in the table already")
        replica = self.entries[replica_id] = ReplicaEntry(
            replica_id, state, self._rules.capacity, self._journal.revocations.last
        )
        self._settle(replica)
        self._journal.log(EventKind.REPLICA_UP, replica_id=replica_id)
        self._ask_anew()

    def remove(self, replica_id: str) -> None:
        """Forget a replica; its sessions choose anew, its open leases count for nothing."""
        replica = self.get(replica_id)
        del self.entries[replica_id]
        replica.state = ReplicaState.STOPPED
        self._settle(replica)
        self._forget(replica_id)
        self._journal.void_replica(replica_id)
        self._journal.log(EventKind.REPLICA_DOWN, replica_id=replica_id, reason="removed")

    def get(self, replica_id: str) -> ReplicaEntry:
        """One replica's books.

        Raises:
            ConfigError: it is not in the table; lists those that are.
        """
        if replica_id not in self.entries:
            raise ConfigError("replica_id", f"unknown {replica_id!r}", allowed=self.entries)
        return self.entries[replica_id]

    def ready(self, replica_id: str) -> ReplicaEntry:
        """:meth:`get`, if it is ready.

        Raises:
            ConfigError: it is not; lists those that are.
        """
        replica = self.get(replica_id)
        if replica.state is not ReplicaState.READY:
            allowed = [r for r, e in self.entries.items() if e.state is ReplicaState.READY]
            raise ConfigError("replica_id", replica.situation, allowed=allowed)
        return replica

    def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Only ``READY`` replicas get new work; the sessions of others choose anew.

        One that is unhealthy is not ready because somebody says so: it is asked at once.

        Raises:
            ConfigError: unknown replica, or no state.
        """
        if not isinstance(state, ReplicaState):
            raise ConfigError("state", f"{state!r}", allowed="a ReplicaState")
        replica = self.get(replica_id)
        if state is replica.state:
            return
        if state is ReplicaState.READY:
            if replica.state is ReplicaState.UNHEALTHY:
                replica.retry_at_s = self._journal.now_s
                return
            health.close(replica)
        elif state is ReplicaState.UNHEALTHY:
            health.take_out(replica, self._journal.now_s, self._rules)
        self._change(replica, state)

    def set_engine(self, replica_id: str, figures: EngineFigures | None) -> None:
        """What a replica's engine reports; for policies that need it."""
        if replica := self.entries.get(replica_id):
            replica.engine = figures
            external = figures.external if figures else 0
            if external != replica.external:
                replica.external = external
                self._settle(replica)
                self.review(replica)

    def forget_cache(self, replica_id: str) -> None:
        """Nothing that a replica computed so far is reused by what comes."""
        if replica := self.entries.get(replica_id):
            replica.cache = object()
            self._forget(replica_id)

    def no_replica(self) -> NoReplicaError:
        """Why nothing can be leased now, for each replica."""
        told = [replica.situation for replica in islice(self.entries.values(), NAMED_REPLICAS)]
        if len(self.entries) > NAMED_REPLICAS:
            told.append(f"and {len(self.entries) - NAMED_REPLICAS} more")
        told += [f"{name} is starting" for name in sorted(self.starting - self.entries.keys())]
        return NoReplicaError(f"no replica can take it: {', '.join(told) or 'the pool is empty'}")

    def _change(self, replica: ReplicaEntry, state: ReplicaState) -> None:
        was_ready = replica.state is ReplicaState.READY
        replica.state = state
        self._settle(replica)
        if was_ready:
            self._journal.void_replica(replica.replica_id)
            why = (replica.reason if state is ReplicaState.UNHEALTHY else "") or state.value
            self._journal.log(EventKind.REPLICA_DOWN, replica_id=replica.replica_id, reason=why)
        elif state is ReplicaState.READY:
            self._journal.log(EventKind.REPLICA_UP, replica_id=replica.replica_id)
            self._ask_anew()
        if state is ReplicaState.DRAINING and not replica.in_flight:
            self._journal.log(EventKind.DRAINED, replica_id=replica.replica_id)

    def _settle(self, replica: ReplicaEntry) -> None:
        """After whatever changed how much a replica may take."""
        calm = replica.state is ReplicaState.READY and not replica.trial
        margin = -1 if self._margin is None else self._margin
        replica.stays_below = min(margin + 1 - replica.external, replica.limit) if calm else 0
        self.candidates.settle(replica)

    def _ask_anew(self) -> None:
        """Where a session belongs may depend on which replicas there are, whatever their load."""
        if self.local_turns and self._margin is None:
            self._journal.void_all()

    # -- health -----------------------------------------------------------------------------

    def fail(self, replica: ReplicaEntry, outcome: Outcome, reason: str = "") -> None:
        """A request failed on a replica; too many in a row, or its death, take it out."""
        if outcome is Outcome.DIED:
            self._forget(replica.replica_id)
        why = reason or ("its engine died" if outcome is Outcome.DIED else "requests failed on it")
        if health.fail(replica, outcome, why, self._rules):
            health.take_out(replica, self._journal.now_s, self._rules)
            self._change(replica, ReplicaState.UNHEALTHY)

    def succeed(self, replica: ReplicaEntry) -> None:
        """A request was served to its end."""
        if replica.state is ReplicaState.READY:  # else it ended well before its replica fell ill
            on_trial = replica.trial
            health.close(replica)
            if on_trial:
                self._settle(replica)

    def probes_due(self) -> list[str]:
        """The unhealthy replicas that are to be asked for their health now."""
        return [
            replica_id
            for replica_id, replica in self.entries.items()
            if replica.state is ReplicaState.UNHEALTHY and replica.retry_at_s <= self._journal.now_s
        ]

    def probed(self, replica_id: str, problem: str = "") -> None:
        """An unhealthy replica answered; or did not, for the reason given."""
        replica = self.entries.get(replica_id)
        if replica is None or replica.state is not ReplicaState.UNHEALTHY:
            return
        if problem:
            replica.reason = problem
            health.postpone_probe(replica, self._journal.now_s, self._rules)
        else:
            health.start_trial(replica)
            self._change(replica, ReplicaState.READY)

    # -- who may start turns alone ----------------------------------------------------------

    def review(self, replica: ReplicaEntry) -> None:
        """Whether turns of the sessions on a replica have to be asked for from now on."""
        margin = self._margin
        if margin is None or not self.local_turns or replica.state is not ReplicaState.READY:
            return
        if replica.load <= margin:
            replica.ask = False
            return
        gap = replica.load - self.candidates.least_loaded().load
        if not replica.ask and gap > margin:
            replica.ask = True
            self._journal.void_replica(replica.replica_id)
        elif replica.ask and 2 * gap <= margin:
            replica.ask = False

    def may_start_alone(self, replica: ReplicaEntry) -> bool:
        """Whether a client may start further turns of a session pinned there without asking."""
        calm = replica.state is ReplicaState.READY and not replica.trial
        return self.local_turns and calm and not replica.ask


def _nothing(_: str) -> None:
    pass
