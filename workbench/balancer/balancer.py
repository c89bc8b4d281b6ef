"""The balancer: the routing table behind plain calls, one per pool.

Every method is synchronous and short. It needs no Ray and no event loop: tests and a pool in this
process use the plain object that it is, :mod:`workbench.cluster.balancer` makes an actor of it.

Two ways in. *The door*: ``acquire_server`` and ``release_server``, one call per turn each, for
anybody. *The exchange*: reports and replies in batches, for token clients, whose turns on pins that
they hold need no call at all.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from workbench.config import RoutingConfig
from workbench.errors import BalancerLostError, ConfigError, ReplicaDiedError
from workbench.routing import views
from workbench.routing.activity import activity
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Outcome, Reply
from workbench.routing.policies import Need, make_policy
from workbench.routing.table import RoutingTable
from workbench.types import Lease, ReplicaState, RoutingEvent, RoutingSnapshot, SessionInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

    from workbench.metrics.samples import Activity
    from workbench.routing.messages import Report
    from workbench.routing.ring import Page
    from workbench.types import EngineFigures

TICK_EVERY = 1000
"""Leases through the door between two looks at the clock, where nobody else ticks."""


class GlobalRequestLoadBalancer:
    """Leases turns of sessions to replicas.

    Args:
        servers: replica id → handle.
        policy: a name, an object or a class; in place of the one in ``rules``.
        seed: of the policy's chances.
        rules: everything else.
        epoch: which life of the balancer this is.
        recovering: it is not the first; clients are about to say what they hold.
        clock: seconds, for idle sessions, silent owners and unhealthy replicas.
        wall_clock: seconds since 1970, for the event log.

    Raises:
        ConfigError: unknown policy; lists the known.
    """

    def __init__(
        self,
        servers: Mapping[str, Any] | None = None,
        *,
        policy: Any = None,
        seed: int = 0,
        rules: RoutingConfig | None = None,
        epoch: int = 1,
        recovering: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.rules = rules or RoutingConfig()
        self._clock, self._wall_clock = clock, wall_clock
        rng = random.Random(seed)
        chosen = make_policy(self.rules.policy if policy is None else policy, rng)
        self._table = RoutingTable(chosen, rules=self.rules, epoch=epoch, now_s=clock(), rng=rng)
        self._table.journal.set_wall_clock(wall_clock())
        until_s = clock() + self.rules.recovery_s if recovering else 0.0
        self._exchange = Exchange(self._table, recover_until_s=until_s)
        self._waiting = self._exchange.line.waiting
        self._handles: dict[str, Any] = {}
        self._until_tick = TICK_EVERY
        self.on_change: Callable[[], None] = _nothing
        """Called when clients may have news."""
        self.add_servers(servers or {})

    # -- the door ---------------------------------------------------------------------------

    def acquire_server(self, request_id: str, owner: str = "", *, prompt_tokens: int = 0) -> Lease:
        """Lease the next turn of a session; the lease unpacks as replica id and handle.

        Args:
            request_id: the session.
            owner: who gives it back. One that calls :meth:`heartbeat` has its leases taken back
                when it falls silent.
            prompt_tokens: of the turn.

        Raises:
            NoReplicaError: no replica can take it now; names the reason for each.
            ConfigError: ``request_id`` is no name, or ``prompt_tokens`` no count.
        """
        if type(request_id) is not str or not request_id:
            raise ConfigError("request_id", f"{request_id!r}", allowed="a text that is not empty")
        if type(prompt_tokens) is not int or prompt_tokens < 0:
            raise ConfigError(
                "prompt_tokens", f"{prompt_tokens!r}", allowed="a whole number from 0"
            )
        self._until_tick -= 1
        if self._until_tick <= 0:
            self._until_tick = TICK_EVERY
            self.tick()
        lease = self._table.acquire(request_id, owner, prompt_tokens=prompt_tokens)
        lease.handle = self._handles[lease.replica_id]
        return lease

    def release_server(self, lease: Lease, *, failed: bool = False) -> bool:
        """Give a lease back; False when it was not open any more, which changes nothing.

        Args:
            lease: as it was acquired.
            failed: the request failed on its replica, which counts against the replica's health;
                otherwise it counts for it.

        Raises:
            ConfigError: it is no lease.
        """
        if not isinstance(lease, Lease):
            raise ConfigError("lease", f"{lease!r}", allowed="what acquire_server returned")
        if lease.epoch != self._table.epoch:
            return False
        outcome = Outcome.FAILED if failed else Outcome.OK
        open_still = self._table.close(lease.owner, lease.lease_id, outcome)
        if failed or self._waiting:
            self._changed()
        return open_still

    def heartbeat(self, owner: str) -> None:
        """A sign of life: an owner that gave one has to give one every ``owner_timeout_s``."""
        self._exchange.hear(owner)

    def release_owner(self, owner: str) -> int:
        """Give back all that one owner holds; how many leases that were."""
        released = self._exchange.leave(owner)
        self._changed()
        return released

    def report_death(self, lease: Lease) -> bool:
        """The replica of this open lease is gone: out of rotation at once."""
        known = self._table.release(lease, Outcome.DIED)
        self._changed()
        return known

    # -- the exchange -----------------------------------------------------------------------

    def exchange(self, report: Report) -> Reply:
        """Take a client's report; see :class:`~workbench.routing.exchange.Exchange`."""
        reply = self._exchange.exchange(report)
        self.on_change()
        return reply

    def leave(self, report: Report) -> None:
        """A client's last report: it is gone, and what it still holds comes back."""
        self._exchange.farewell(report)
        self._changed()

    def news(self, owner: str, cursor: int, *, is_sign_of_life: bool = True) -> Reply | None:
        """What a client was not told yet; None for nothing."""
        return self._exchange.news(owner, cursor, is_sign_of_life=is_sign_of_life)

    def nothing_new(self, cursor: int) -> Reply:
        """The answer to a client that waited in vain."""
        return Reply(
            self._table.epoch,
            cursor,
            needs=self._table.rotation.needs,
            report_s=self.rules.report_s,
        )

    def has_news(self, owner: str) -> bool:
        """Whether there is something that a client was not told yet."""
        return self._exchange.has_news(owner)

    def addressees(self, watching: Set[str]) -> list[str]:
        """Which of those who watch have news that came up since this was asked last."""
        return self._exchange.addressees(watching)

    def tick(self) -> None:
        """Let happen what is overdue."""
        self._exchange.tick(self._clock())
        self._table.journal.set_wall_clock(self._wall_clock())
        self.on_change()

    def _changed(self) -> None:
        self._exchange.serve()
        self.on_change()

    # -- replicas ---------------------------------------------------------------------------

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Take replicas into rotation.

        Raises:
            ConfigError: one of them is there already; none was added.
        """
        if present := [replica_id for replica_id in servers if replica_id in self._handles]:
            raise ConfigError("replica_id", f"{present[0]!r} is in the table already")
        for replica_id, handle in servers.items():
            self._handles[replica_id] = handle
            self._table.rotation.add(replica_id)
        self._exchange.restored()
        self._changed()

    def remove_servers(self, replica_ids: Iterable[str]) -> None:
        """Take replicas out; their sessions choose anew.

        Raises:
            ConfigError: one of them is unknown; none was removed.
        """
        leaving = dict.fromkeys(replica_ids)
        for replica_id in leaving:
            self._table.rotation.get(replica_id)
        for replica_id in leaving:
            self._table.rotation.remove(replica_id)
            del self._handles[replica_id]
        self._changed()

    def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Only ready replicas get new work; a draining one finishes what it has."""
        self._table.rotation.set_state(replica_id, state)
        self._changed()

    def expect(self, replica_ids: Iterable[str]) -> None:
        """Replicas that are being started: while there are some, turns wait for them."""
        self._table.rotation.starting = frozenset(replica_ids)
        self._changed()

    def forget_caches(self, replica_ids: Iterable[str]) -> None:
        """What these have in their KV caches is of no use any more: their weights are others."""
        for replica_id in replica_ids:
            self._table.rotation.forget_cache(replica_id)

    def handles(self) -> dict[str, Any]:
        """Replica id → handle."""
        return dict(self._handles)

    def handle(self, replica_id: str) -> Any:
        """The handle of a replica.

        Raises:
            ReplicaDiedError: there is none of this name (any more).
            BalancerLostError: it is starting over and may not know the replica yet.
        """
        if replica_id not in self._handles:
            if self._exchange.recovering:
                raise BalancerLostError("the balancer is starting over")
            raise ReplicaDiedError(replica_id, "it is not in the pool any more")
        return self._handles[replica_id]

    def probes_due(self) -> list[str]:
        """Unhealthy replicas that are to be asked for their health now."""
        return self._table.rotation.probes_due()

    def probed(self, replica_id: str, problem: str = "") -> None:
        """An unhealthy replica answered, or did not for the reason given."""
        self._table.rotation.probed(replica_id, problem)
        self._changed()

    def set_engine(self, replica_id: str, figures: EngineFigures | None) -> None:
        """What a replica's engine reports, for policies that need it."""
        self._table.rotation.set_engine(replica_id, figures)

    @property
    def needs_engine(self) -> bool:
        """Whether the policy wants to know what the engines report."""
        return Need.ENGINE_FIGURES in self._table.rotation.needs

    # -- sessions ---------------------------------------------------------------------------

    def end_session(self, session_id: str) -> bool:
        """Forget a session; whether it was known."""
        known = self._table.sessions.end(session_id)
        self._table.journal.void_session(session_id)
        self.on_change()
        return known

    def move_session(self, session_id: str, replica_id: str) -> None:
        """Pin a session to another replica, from its next turn on.

        Raises:
            ConfigError: unknown session; unknown or unready replica.
        """
        self._table.move_session(session_id, replica_id)
        self.on_change()

    def sessions(self, start: int = 0, limit: int = 1000) -> list[SessionInfo]:
        """A page of sessions with their history, in the order in which they came.

        Raises:
            ConfigError: a negative ``start`` or ``limit``.
        """
        _check_counts(start=start, limit=limit)
        return list(self._table.sessions.infos(start, limit))

    def session(self, session_id: str) -> SessionInfo | None:
        """One session with its history; None when it is not known."""
        entry = self._table.sessions.entries.get(session_id)
        return self._table.sessions.info(session_id, entry) if entry else None

    def pins(self) -> dict[str, str | None]:
        """Session id → replica id."""
        return self._table.sessions.pins()

    # -- views ------------------------------------------------------------------------------

    def snapshot(self) -> RoutingSnapshot:
        """The books at this moment."""
        return views.snapshot(
            self._table, queued=self._exchange.queued, clients=len(self._exchange.clients)
        )

    def events(self, cursor: int = 0, limit: int | None = None) -> Page[RoutingEvent]:
        """What happened after event number ``cursor``, oldest first.

        Raises:
            ConfigError: a negative ``cursor`` or ``limit``.
        """
        _check_counts(cursor=cursor, limit=0 if limit is None else limit)
        return self._table.journal.events(cursor, limit)

    def activity(self, cursor: int = 0, top: int = 30) -> Activity:
        """What sessions did after event number ``cursor``, as far as the log reaches back.

        Args:
            cursor: where the last call ended; 0 for all that there is.
            top: sessions that are told one by one, the busiest; the others only by replica.

        Raises:
            ConfigError: a negative ``cursor`` or ``top``.
        """
        _check_counts(cursor=cursor, top=top)
        return activity(self._table.journal, cursor, top)

    def sample(self, cursor: int = 0, top: int = 30) -> tuple[RoutingSnapshot, Activity]:
        """:meth:`snapshot` and :meth:`activity` of the same moment, in one call."""
        return self.snapshot(), self.activity(cursor, top)

    def check(self) -> None:
        """Assert that the books are in order."""
        views.check(self._table)

    def get_all_servers(self) -> list[str]:
        """Replica ids in the order in which they were added."""
        return list(self._table.replicas)

    def get_inflight_count(self, server_id: str) -> int:
        """Open leases on one replica."""
        return self._table.rotation.get(server_id).in_flight

    def get_total_inflight(self) -> int:
        """Open leases on all."""
        return sum(replica.in_flight for replica in self._table.replicas.values())

    def get_status(self) -> dict[str, Any]:
        """verl's summary of the same books."""
        books = self.snapshot()
        return {
            "servers": {replica.replica_id: replica.in_flight for replica in books.replicas},
            "total_inflight": books.in_flight,
            "active_servers": sum(r.state is ReplicaState.READY for r in books.replicas),
            "registered_handles": len(self._handles),
        }


def _nothing() -> None:
    pass


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if type(count) is not int or count < 0:
            raise ConfigError(name, f"{count!r}", allowed="a whole number from 0")
