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
    from collections.abc import Set

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
        self.line = WaitingLine(table.replicas)
        self._recover_until_s = recover_until_s
        self._none_ready_since_s: float | None = None
        self._layout = (0, 0)
        self._addressed: dict[str, None] = {}  # in order: who is woken first has to be repeatable
        self._all_addressed = False
        self._looked_at = 0
        """Stamp of the last revocation that :meth:`addressees` has seen."""
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
        reply = self._reply(report.owner, client, report.cursor)
        reply.answers = report.number
        return reply

    def _welcome(self, report: Report) -> _Client:
        """A client that is new, or that starts over: what it does not name has come back.

        What it still wants may have been granted by an answer that is on its way.
        """
        owner, wanted = report.owner, {want.lease_id for want in report.wants}
        for other, lease_id in list(self.line.waiting):
            if other == owner and lease_id not in wanted:
                self.line.remove(owner, lease_id)
        self.table.release_owner(owner, keep={turn.lease_id for turn in report.opened} | wanted)
        heard = self._clients[owner].number if owner in self._clients else 0
        for lost in report.again:
            if lost.number > heard:
                self._note(lost)
        client = self._clients[owner] = _Client(self.table.journal.now_s)
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
                client.again = self._all_addressed = True
                until_s = self.table.journal.now_s + self._rules.recovery_s
                self._recover_until_s = max(self._recover_until_s, until_s)

    def _apply(self, report: Report) -> None:
        table, owner = self.table, report.owner
        touched: set[str] = set()
        for closed in report.closed:
            outcome = Outcome.OK if closed.served else Outcome.LEFT
            if not table.close(owner, closed.lease_id, outcome):
                self.line.remove(owner, closed.lease_id)
        for turn in report.opened:
            table.begin(owner, turn)
            touched.add(turn.replica_id)
        self._note(report)
        for replica_id in touched:
            if replica := table.replicas.get(replica_id):
                table.rotation.review(replica)

    def _note(self, report: Report) -> None:
        """Usage, ended sessions and failures: what must not be counted twice."""
        for failure in report.failures:
            replica = self.table.replicas.get(failure.replica_id)
            if replica is not None and failure.stamp >= replica.since:
                self.table.rotation.fail(replica, failure.outcome)
        for usage in report.usage:
            self.table.note(report.owner, usage)
        for session_id in report.ended:
            self.table.sessions.end(session_id)

    def _take(self, owner: str, client: _Client, want: Want) -> None:
        held = self.table.leases.get(owner, {}).get(want.lease_id)
        if held is not None:  # asked twice: the answer to the first time was lost
            client.grants.append(Grant(want.lease_id, held[0].replica_id, ASK))
        else:
            self.line.add(owner, want)

    def news(self, owner: str, cursor: int, *, is_sign_of_life: bool = True) -> Reply | None:
        """What has come up for a client since it was last answered; None for nothing.

        ``is_sign_of_life``: it asks just now.
        """
        client = self._clients.get(owner)
        if client is None or client.again:
            return Reply(self.table.epoch, 0, resync=True)
        if is_sign_of_life:
            client.heard_s = self.table.journal.now_s
        if not (client.grants or client.refusals or self.table.journal.revocations.last > cursor):
            return None
        return self._reply(owner, client, cursor)

    def farewell(self, report: Report) -> int:
        """A client's last report: it is gone; how many leases it still held."""
        self.exchange(report)
        return self.leave(report.owner)

    def leave(self, owner: str) -> int:
        """A client is gone; how many leases it still held."""
        self._clients.pop(owner, None)
        self._addressed.pop(owner, None)
        self._all_addressed = True
        self.line.remove_owner(owner)
        return self.table.release_owner(owner)

    # -- granting ---------------------------------------------------------------------------

    def serve(self) -> None:
        """Give those who wait what there is."""
        candidates = self.table.candidates
        if self.line and candidates.num_open:
            anew = self.line.apart > 0 and self._layout_changed()
            self.line.serve(self._grant, lambda: candidates.num_open > 0, anew=anew)

    def _layout_changed(self) -> bool:
        """Whether replicas came or went, or pins were moved, since this was asked last."""
        before = self._layout
        ready = sum(r.state is ReplicaState.READY for r in self.table.replicas.values())
        self._layout = ready, self.table.journal.revocations.last
        return self._layout != before

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
        except NoReplicaError:
            raise
        except Exception as error:  # noqa: BLE001 - a policy's fault, told to whose turn it was
            self._refuse(owner, want, error)
            return
        replica = self.table.replicas[lease.replica_id]
        self.table.rotation.review(replica)
        self._clients[owner].grants.append(self._grant_on(want, replica))
        self._addressed[owner] = None

    def _refuse(self, owner: str, want: Want, error: Exception) -> None:
        self._clients[owner].refusals.append(Refusal(want.lease_id, error))
        self._addressed[owner] = None

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
    def queued(self) -> int:
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

    def addressees(self, watching: Set[str]) -> list[str]:
        """Which of those who watch have news that came up since this was asked last."""
        last = self.table.journal.revocations.last
        if self._all_addressed or last != self._looked_at:
            asked = list(watching)
        else:
            asked = [owner for owner in self._addressed if owner in watching]
        self._all_addressed, self._looked_at = False, last
        self._addressed.clear()
        return [owner for owner in asked if self.has_news(owner)]

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
        if ready or self.recovering or self.table.rotation.starting:
            self._none_ready_since_s = None
            return
        if self._none_ready_since_s is None:
            self._none_ready_since_s = now_s
        if now_s - self._none_ready_since_s >= self._rules.no_replica_s:
            for owner, want in self.line.empty():
                self._refuse(owner, want, self.table.rotation.no_replica())
