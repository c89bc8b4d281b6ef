"""The balancer's side of the talk with its clients: who they are, what waits, what they are told.

Clients report what they did on the pins that they hold and ask for what they cannot decide alone.
A client that is not heard of for ``owner_timeout_s`` loses its leases; one that comes back after
that, or after a restart of the balancer, is asked to say everything that it holds.

Plain and synchronous. Time is what :meth:`Exchange.tick` said last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import NoReplicaError
from workbench.routing.messages import ASK, Grant, Outcome, Refusal, Reply
from workbench.routing.waiting import WaitingLine
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.routing.entries import ReplicaEntry
    from workbench.routing.messages import Report, Want
    from workbench.routing.table import RoutingTable

ROUNDS = 4
"""How often each session is looked at within the time after which it would be idle too long."""


class _Client:
    __slots__ = ("again", "grants", "heard_s", "number", "refusals", "told", "unknown")

    def __init__(self, now_s: float) -> None:
        self.number = 0
        self.heard_s = now_s
        self.told = 0
        """Stamp of the last revocation that it was told of."""
        self.grants: list[Grant] = []
        self.refusals: list[Refusal] = []
        self.unknown: set[str] = set()
        """Replicas that it named, which the table did not know then."""
        self.again = False
        """Whether it has to say once more all that it holds."""


class Exchange:
    """See the module. ``recover_until_s``: till then turns of sessions that nobody named wait."""

    def __init__(self, table: RoutingTable, *, recover_until_s: float = 0.0) -> None:
        self.table = table
        self._rules = table.rules
        self._clients: dict[str, _Client] = {}
        self.line = WaitingLine()
        self._recover_until_s = recover_until_s
        self._none_ready_since_s: float | None = None
        self._waited_for: set[str] = set()
        self._swept_s = table.journal.now_s

    # -- from clients -----------------------------------------------------------------------

    def exchange(self, report: Report) -> Reply:
        """Take a report, answer what can be answered now; the rest comes by :meth:`news`."""
        client = self._clients.get(report.owner)
        is_new = client is None or report.number > client.number
        if report.full and is_new:
            client = self._welcome(report)
        elif client is None or client.again or report.full or report.epoch != self.table.epoch:
            return Reply(self.table.epoch, 0, resync=True)
        client.heard_s = self.table.journal.now_s
        if is_new:
            client.number = report.number
            self._apply(report)
        for want in report.wants:
            self._take(report.owner, client, want)
        self.serve()
        return self._reply(report.owner, client, report.cursor)

    def _welcome(self, report: Report) -> _Client:
        """A client that is new, or that starts over: what it does not name has come back."""
        self.line.remove_owner(report.owner)
        self.table.release_owner(report.owner, keep={turn.lease_id for turn in report.opened})
        client = self._clients[report.owner] = _Client(self.table.journal.now_s)
        for session_id, replica_id in report.pins:
            if replica := self.table.replicas.get(replica_id):
                self.table.sessions.adopt(session_id, replica)
        if self._recover_until_s:
            named = {pin[1] for pin in report.pins} | {turn.replica_id for turn in report.opened}
            client.unknown = named - self.table.replicas.keys()
        return client

    def restored(self) -> None:
        """Replicas came. Clients that named them before they were known have to do so again."""
        for client in self._clients.values():
            if not client.unknown.isdisjoint(self.table.replicas):
                client.again = True
                until_s = self.table.journal.now_s + self._rules.recovery_s
                self._recover_until_s = max(self._recover_until_s, until_s)

    def _apply(self, report: Report) -> None:
        table, owner = self.table, report.owner
        touched: set[str] = set()
        for failure in report.failures:
            replica = table.replicas.get(failure.replica_id)
            if replica is not None and failure.stamp >= replica.since:
                table.rotation.fail(replica, failure.outcome)
        for closed in report.closed:
            outcome = Outcome.OK if closed.served else Outcome.LEFT
            if not table.close(owner, closed.lease_id, outcome):
                self.line.remove(owner, closed.lease_id)
        for turn in report.opened:
            table.begin(owner, turn)
            touched.add(turn.replica_id)
        for usage in report.usage:
            table.note(owner, usage)
        for session_id in report.ended:
            table.sessions.end(session_id)
        for replica_id in touched:
            if replica := table.replicas.get(replica_id):
                table.rotation.review(replica)

    def _take(self, owner: str, client: _Client, want: Want) -> None:
        held = self.table.leases.get(owner, {}).get(want.lease_id)
        if held is not None:  # asked twice: the answer to the first time was lost
            client.grants.append(Grant(want.lease_id, held[0].replica_id, ASK))
        else:
            self.line.add(owner, want)

    def news(self, owner: str, cursor: int) -> Reply | None:
        """What has come up for a client since it was last answered; None for nothing."""
        client = self._clients.get(owner)
        if client is None or client.again:
            return Reply(self.table.epoch, 0, resync=True)
        client.heard_s = self.table.journal.now_s
        if not (client.grants or client.refusals or self.table.journal.revocations.last > cursor):
            return None
        return self._reply(owner, client, cursor)

    def leave(self, owner: str) -> int:
        """A client is gone; how many leases it still held."""
        self._clients.pop(owner, None)
        self.line.remove_owner(owner)
        return self.table.release_owner(owner)

    # -- granting ---------------------------------------------------------------------------

    def serve(self) -> None:
        """Give those who wait what there is."""
        if self.line:
            self._count_waiting()
            self.line.serve(self._grant, lambda: self.table.candidates.num_open > 0)

    def _grant(self, owner: str, want: Want) -> None:
        if self.recovering and want.session_id not in self.table.sessions.entries:
            raise self.table.rotation.no_replica()
        try:
            lease = self.table.acquire(
                want.session_id,
                owner,
                prompt_tokens=want.prompt_tokens,
                blocks=want.blocks,
                lease_id=want.lease_id,
            )
        except NoReplicaError as error:
            self._count_waiting(error.replica_id)
            raise
        except Exception as error:  # noqa: BLE001 - a policy's fault, told to whose turn it was
            self._clients[owner].refusals.append(Refusal(want.lease_id, error))
            return
        replica = self.table.replicas[lease.replica_id]
        self.table.rotation.review(replica)
        self._clients[owner].grants.append(self._grant_on(want, replica))

    def _count_waiting(self, replica_id: str | None = None) -> None:
        """One more waits for this replica; None starts counting anew."""
        if replica_id is not None:
            self.table.replicas[replica_id].waiting += 1
            self._waited_for.add(replica_id)
            return
        for waited_for in self._waited_for:
            if replica := self.table.replicas.get(waited_for):
                replica.waiting = 0
        self._waited_for.clear()

    def _grant_on(self, want: Want, replica: ReplicaEntry) -> Grant:
        alone = self.table.rotation.may_start_alone(replica)
        stamp = self.table.journal.revocations.last if alone else ASK
        return Grant(want.lease_id, replica.replica_id, stamp)

    def _reply(self, owner: str, client: _Client, cursor: int) -> Reply:
        page = self.table.journal.revocations.read(cursor)
        waiting = ""
        if self.line.waits(owner):
            waiting = str(self.table.rotation.no_replica())
        reply = Reply(
            self.table.epoch,
            page.cursor,
            client.grants,
            client.refusals,
            page.items,
            forget_pins=page.lost > 0,
            waiting=waiting,
            needs=self.table.rotation.needs,
            report_s=self._rules.report_s,
        )
        client.grants, client.refusals, client.told = [], [], page.cursor
        return reply

    # -- time -------------------------------------------------------------------------------

    @property
    def recovering(self) -> bool:
        """Whether clients may still be about to say where their sessions are."""
        return self.table.journal.now_s < self._recover_until_s

    @property
    def waiting(self) -> int:
        """Turns that wait for a replica."""
        return len(self.line)

    @property
    def clients(self) -> list[str]:
        """Owners that were heard of lately."""
        return list(self._clients)

    def has_news(self, owner: str) -> bool:
        """Whether :meth:`news` has something that this client was not told."""
        client = self._clients.get(owner)
        if client is None or client.again:
            return True
        untold = self.table.journal.revocations.last > client.told
        return bool(untold or client.grants or client.refusals)

    def hear(self, owner: str) -> None:
        """A sign of life; whoever gave one has to go on giving them."""
        client = self._clients.setdefault(owner, _Client(self.table.journal.now_s))
        client.heard_s = self.table.journal.now_s

    def tick(self, now_s: float) -> None:
        """It is ``now_s`` now: what is overdue happens."""
        self.table.journal.now_s = now_s
        late = now_s - self._rules.owner_timeout_s
        for owner in [o for o, client in self._clients.items() if client.heard_s < late]:
            self.leave(owner)
        self._expire_sessions(now_s - self._swept_s)
        self.table.drop_empty_owners()
        self._refuse_if_hopeless(now_s)
        self.serve()

    def _expire_sessions(self, elapsed_s: float) -> None:
        """A few at a time, so that a million sessions cost no long pause."""
        sessions, idle_s = self.table.sessions, self._rules.session_idle_s
        share = int(len(sessions.entries) * ROUNDS * elapsed_s / idle_s)
        if share:
            self._swept_s = self.table.journal.now_s
            sessions.expire(idle_s, share)

    def _refuse_if_hopeless(self, now_s: float) -> None:
        ready = any(r.state is ReplicaState.READY for r in self.table.replicas.values())
        if ready or not self.line or self.recovering:
            self._none_ready_since_s = None
            return
        if self._none_ready_since_s is None:
            self._none_ready_since_s = now_s
        if now_s - self._none_ready_since_s >= self._rules.no_replica_s:
            for owner, want in self.line.empty():
                error = self.table.rotation.no_replica()
                self._clients[owner].refusals.append(Refusal(want.lease_id, error))
