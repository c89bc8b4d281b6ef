"""What one client holds: its leases, the pins it may use alone, and what it has yet to report.

A session lease is a pin with a stamp: while no revocation with a later stamp concerns it, turns of
that session begin here without asking. Pure book-keeping; :mod:`workbench.client.desk` talks.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.routing.messages import (
    ASK,
    ClosedTurn,
    Failure,
    OpenTurn,
    Outcome,
    Report,
    Usage,
    Want,
)
from workbench.types import Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.routing.messages import Grant, Reply, Revocation
    from workbench.routing.policies.base import Need

MAX_PINS = 100_000
"""Session leases that a client keeps; beyond it the older half is asked for anew when needed."""


class _Use:
    """What a session did since the last report."""

    __slots__ = ("cached", "context", "known", "prompt", "replica_id", "sampled", "turns")

    def __init__(self) -> None:
        self.replica_id = ""
        self.turns = self.prompt = self.sampled = self.cached = self.context = self.known = 0


class LeaseBook:
    """See the module. A lease is given back exactly once; a second time changes nothing."""

    def __init__(self, owner: str, on_void: Callable[[str], None] | None = None) -> None:
        self.owner = owner
        self._on_void = on_void or _nothing
        """Called with each replica whose pins are void, or with "" for all."""
        self.epoch = 0
        """Of the balancer that was last heard; 0 before the first reply."""
        self.needs: frozenset[Need] = frozenset()
        self.report_s = 0.05
        self.waiting = ""
        """Why turns of this client wait, as the balancer last said."""
        self.cursor = 0
        self._ids = itertools.count(1)
        self._number = 0
        self._full = True
        self._said_all = False
        """Whether the last report was a full one."""
        self._pins: dict[str, tuple[str, int]] = {}
        self._void: dict[str, int] = {}
        """Replica id → pins there with an older stamp are void."""
        self._pinned_from = 0
        """Grants with an older stamp pin nothing: their session may have been revoked since."""
        self._open: dict[int, tuple[Lease, int, int]] = {}
        """Lease id → lease, prompt tokens, stamp of its pin."""
        self._unreported: set[int] = set()
        """Open leases that the balancer does not know yet."""
        self._wants: dict[int, Want] = {}
        self._unsent: dict[int, Want] = {}
        self._closed: list[ClosedTurn] = []
        self._uses: dict[str, _Use] = {}
        self._ended: list[str] = []
        self._failures: list[Failure] = []
        self._lost: list[Report] = []
        """Reports that may not have been heard, as far as they may have to be said again."""

    # -- leases -----------------------------------------------------------------------------

    def take(self, session_id: str, prompt_tokens: int = 0) -> Lease | None:
        """Begin a turn on a pin that is held; None where the balancer has to be asked."""
        pin = self._pins.get(session_id)
        if pin is None:
            return None
        replica_id, stamp = pin
        if stamp == ASK:
            return None  # only kept to say where the session is
        if stamp < self._void.get(replica_id, 0):
            del self._pins[session_id]
            return None
        lease_id = next(self._ids)
        lease = Lease(lease_id, session_id, replica_id, self.owner, self.epoch)
        self._open[lease_id] = (lease, prompt_tokens, stamp)
        self._unreported.add(lease_id)
        use = self._use(session_id, replica_id)
        use.turns += 1
        use.prompt += prompt_tokens
        return lease

    def want(
        self,
        session_id: str,
        prompt_tokens: int = 0,
        priority: int = 0,
        blocks: tuple[int, ...] = (),
    ) -> int:
        """Ask for a turn with the next report; the id of the lease that will answer it."""
        want = Want(next(self._ids), session_id, prompt_tokens, priority, blocks)
        self._wants[want.lease_id] = self._unsent[want.lease_id] = want
        return want.lease_id

    def withdraw(self, lease_id: int) -> None:
        """Nobody waits for this turn any more."""
        if self._wants.pop(lease_id, None) and not self._unsent.pop(lease_id, None):
            self._closed.append(ClosedTurn(lease_id, served=False))

    def give_back(
        self,
        lease: Lease,
        outcome: Outcome = Outcome.OK,
        *,
        sampled_tokens: int = 0,
        cached_tokens: int | None = None,
        context_tokens: int = 0,
    ) -> bool:
        """End a turn; whether it was open. ``cached_tokens``: None when unknown."""
        held = self._open.pop(lease.lease_id, None)
        if held is None:
            return False
        session_id, replica_id = lease.session_id, lease.replica_id
        if lease.lease_id in self._unreported:
            self._unreported.discard(lease.lease_id)
        else:
            self._closed.append(ClosedTurn(lease.lease_id, served=outcome is Outcome.OK))
        if outcome >= Outcome.FAILED:
            self._failures.append(Failure(replica_id, held[2], outcome))
            self._pins.pop(session_id, None)
        if context_tokens:
            use = self._use(session_id, replica_id)
            use.sampled += sampled_tokens
            use.context = context_tokens
            if cached_tokens is not None:
                use.cached += cached_tokens
                use.known += context_tokens - sampled_tokens
        if outcome is Outcome.DIED and self._void.get(replica_id, 0) <= held[2]:
            # All that is pinned there. The balancer will say so too, unless it has: then the
            # replica may be back, with pins that are good.
            self._void[replica_id] = self.cursor + 1
        return True

    def end_session(self, session_id: str) -> None:
        """No further turn of it will come."""
        self._pins.pop(session_id, None)
        self._ended.append(session_id)

    @property
    def num_open(self) -> int:
        """Leases that were not given back."""
        return len(self._open)

    @property
    def num_pins(self) -> int:
        """Session leases."""
        return sum(stamp != ASK for _, stamp in self._pins.values())

    def _use(self, session_id: str, replica_id: str) -> _Use:
        use = self._uses.get(session_id)
        if use is None:
            use = self._uses[session_id] = _Use()
        use.replica_id = replica_id
        return use

    # -- reports ----------------------------------------------------------------------------

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for the balancer, or others should know at once."""
        return bool(self._unsent or self._failures or self._full)

    @property
    def dirty(self) -> bool:
        """Whether there is something to report."""
        return bool(
            self._unsent
            or self._closed
            or self._uses
            or self._ended
            or self._failures
            or self._unreported
            or self._full
        )

    def report(self) -> Report:
        """What changed since the last one; everything that is held where the balancer asked so."""
        self._number += 1
        full, self._full = self._full, False
        self._said_all = full
        opened = self._open if full else self._unreported
        report = Report(
            self.owner,
            self._number,
            self.epoch,
            full,
            wants=list((self._wants if full else self._unsent).values()),
            opened=[self._open_turn(lease_id) for lease_id in opened],
            closed=[] if full else self._closed,
            usage=[
                Usage(s, u.replica_id, u.turns, u.prompt, u.sampled, u.cached, u.context, u.known)
                for s, u in self._uses.items()
            ],
            ended=self._ended,
            failures=self._failures,
            pins=[(session, pin[0]) for session, pin in self._pins.items()] if full else [],
            cursor=self.cursor,
            again=self._lost if full else [],
        )
        if full:
            self._lost = []
        self._unsent, self._closed, self._uses = {}, [], {}
        self._ended, self._failures, self._unreported = [], [], set()
        return report

    def _open_turn(self, lease_id: int) -> OpenTurn:
        lease, prompt_tokens, _ = self._open[lease_id]
        return OpenTurn(lease_id, lease.session_id, lease.replica_id, prompt_tokens)

    def lost(self, report: Report) -> None:
        """Nobody may have heard a report: the next one says all that is held."""
        self._full = True
        told = replace(report, full=False, wants=[], opened=[], closed=[], pins=[], again=[])
        self._lost += [*report.again, told]

    def apply(self, reply: Reply) -> list[tuple[int, Lease | Exception]]:
        """Obey a reply; the wants that it answers, each with its lease or the reason for none."""
        if reply.epoch < self.epoch:
            return []  # overtaken by the balancer's next life
        if reply.epoch > self.epoch:
            self._new_epoch(reply.epoch)
            # Unless it answers all that was ever said, the new life does not know everything.
            self._full = self._full or reply.answers != self._number or not self._said_all
        if reply.resync:
            self._full = True
            return []
        self.needs, self.report_s = reply.needs, reply.report_s
        if reply.forget_pins:
            self._pins.clear()
            self._on_void("")
            self._pinned_from = max(self._pinned_from, reply.cursor)
        for revocation in reply.revocations:
            self._obey(revocation)
        self.cursor = max(self.cursor, reply.cursor)
        granted = [lease for grant in reply.grants if (lease := self._granted(grant))]
        answers: list[tuple[int, Lease | Exception]] = [(lse.lease_id, lse) for lse in granted]
        answers += [
            (refusal.lease_id, refusal.error)
            for refusal in reply.refusals
            if self._wants.pop(refusal.lease_id, None)
        ]
        if reply.waiting or not self._wants:  # a watch that ended in vain says nothing
            self.waiting = reply.waiting
        return answers

    def start_over(self, *, forget_pins: bool = False) -> None:
        """An answer may have been lost: the next report says all that is held."""
        self._full = True
        if forget_pins:
            self._pins.clear()

    def _new_epoch(self, epoch: int) -> None:
        """Stamps start over with the balancer; what is pinned stays so until it says otherwise."""
        self.epoch = epoch
        self._failures = [failure._replace(stamp=0) for failure in self._failures]
        self._lost = [replace(report, failures=[]) for report in self._lost]
        self._open = {i: (lease, tokens, 0) for i, (lease, tokens, _) in self._open.items()}
        self.cursor = self._pinned_from = 0
        self._void.clear()
        self._pins = {session: (pin[0], min(pin[1], 0)) for session, pin in self._pins.items()}

    def _obey(self, revocation: Revocation) -> None:
        if revocation.replica_id:
            void_before = self._void.get(revocation.replica_id, 0)
            self._void[revocation.replica_id] = max(void_before, revocation.stamp)
            self._on_void(revocation.replica_id)
            return
        self._pinned_from = max(self._pinned_from, revocation.stamp)
        if not revocation.session_id:
            self._pins.clear()
            self._on_void("")
        if (pin := self._pins.get(revocation.session_id)) and pin[1] < revocation.stamp:
            del self._pins[revocation.session_id]

    def _granted(self, grant: Grant) -> Lease | None:
        want = self._wants.pop(grant.lease_id, None)
        if want is None:
            if grant.lease_id not in self._open:  # withdrawn while the answer was on its way
                self._closed.append(ClosedTurn(grant.lease_id, served=False))
            return None
        lease = Lease(grant.lease_id, want.session_id, grant.replica_id, self.owner, self.epoch)
        stamp = self.cursor if grant.stamp == ASK else grant.stamp
        self._open[grant.lease_id] = (lease, want.prompt_tokens, stamp)
        if len(self._pins) >= MAX_PINS:
            for session_id in list(itertools.islice(self._pins, MAX_PINS // 2)):
                del self._pins[session_id]
        alone = grant.stamp != ASK and grant.stamp >= self._pinned_from
        self._pins[want.session_id] = (grant.replica_id, grant.stamp if alone else ASK)
        return lease


def _nothing(_: str) -> None:
    pass
