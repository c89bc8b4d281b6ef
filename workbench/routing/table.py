"""The routing table: replicas, sessions and leases, and the counts that follow from them.

Invariants, asserted by :func:`workbench.routing.views.check`:

* a lease is given back exactly once; a second release, one from an older epoch and one of a
  lease that never was change nothing;
* a replica's in-flight count is the number of open leases on it, so a replica that was removed
  and added again starts at zero whatever is still out on its former self;
* a session is pinned to at most one replica, and only to one that the table knows.

Plain and synchronous: it owns no task, clock, client or actor.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from workbench.config import RoutingConfig
from workbench.errors import ConfigError, NoReplicaError
from workbench.routing.entries import ReplicaEntry, SessionEntry
from workbench.routing.journal import Journal
from workbench.routing.messages import Outcome
from workbench.routing.policies.base import Turn
from workbench.routing.rotation import Rotation
from workbench.routing.sessions import Sessions
from workbench.types import EventKind, Lease, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Collection

    from workbench.routing.messages import OpenTurn, Usage
    from workbench.routing.policies.base import Policy, ReplicaView

DOOR_IDS = 1 << 48
"""Lease ids that the table gives start here; clients number their own from 1."""

ACQUIRED, RELEASED = EventKind.ACQUIRED, EventKind.RELEASED

Held = tuple[ReplicaEntry, SessionEntry, int, str]
"""An open lease: replica, session, prompt tokens, session id."""


class RoutingTable:
    """Who is where."""

    def __init__(
        self,
        policy: Policy,
        *,
        rules: RoutingConfig | None = None,
        epoch: int = 1,
        now_s: float = 0.0,
        rng: random.Random | None = None,
    ) -> None:
        self.epoch = epoch
        self.rules = rules or RoutingConfig()
        self.policy = policy
        self.journal = Journal(self.rules.events, now_s, epoch)
        self.rotation = Rotation(policy, self.rules, self.journal, rng or random.Random(0))
        self.replicas, self.candidates = self.rotation.entries, self.rotation.candidates
        self.sessions = Sessions(self.journal, self.candidates)
        self.leases: dict[str, dict[int, Held]] = {}
        """Owner → lease id → what it holds."""
        self.acquired = self.sticky = 0
        self.known_prompt_tokens = self.predicted_cached_tokens = self.cached_tokens = 0
        self._lease_ids = itertools.count(DOOR_IDS)
        self._log = self.journal.log
        self._note, self._numbers = self.journal.written.append, self.journal.numbers

    # -- leases -----------------------------------------------------------------------------

    def acquire(
        self,
        session_id: str,
        owner: str = "",
        *,
        prompt_tokens: int = 0,
        blocks: tuple[int, ...] = (),
        lease_id: int | None = None,
    ) -> Lease:
        """Lease the next turn of a session on the replica that the policy names.

        Raises:
            NoReplicaError: no replica can take it now; names the reason for each.
            ConfigError: the policy named a replica that was not offered.
        """
        candidates = self.candidates
        if not candidates.num_open:
            raise self.rotation.no_replica()
        session = self.sessions.entries.get(session_id)
        if session is None:
            session = self.sessions.entry(session_id)
        chosen = session.pin
        if chosen is None or chosen.in_flight >= chosen.stays_below:
            chosen = self._choose(session_id, session, prompt_tokens, blocks)
        if chosen is session.pin:
            self.sticky += 1
        else:
            self.sessions.pin(session_id, session, chosen, is_shared=self.rotation.local_turns)
        if lease_id is None:
            lease_id = next(self._lease_ids)
        session.turns += 1
        session.turns_here += 1
        session.prompt_tokens += prompt_tokens
        self.acquired += 1
        chosen.acquired += 1
        self._hold(owner, lease_id, (chosen, session, prompt_tokens, session_id))
        now_s, at = self.journal.now_s, chosen.replica_id
        self._note((next(self._numbers), now_s, ACQUIRED, session_id, at, owner, 1, ""))
        return Lease(lease_id, session_id, chosen.replica_id, owner, self.epoch)

    def _choose(
        self, session_id: str, session: SessionEntry, prompt_tokens: int, blocks: tuple[int, ...]
    ) -> ReplicaEntry:
        pinned = session.pin
        if pinned is not None and (pinned.state is not ReplicaState.READY or pinned.trial):
            pinned = None
        turn = Turn(
            session_id,
            prompt_tokens,
            blocks,
            session.context_tokens,
            session.yields,
            session.turns_here,
        )
        chosen = self._offered(self.policy.choose(turn, pinned, self.candidates))
        if not chosen.open:
            raise NoReplicaError(
                f"{chosen.situation}, and the session belongs there", replica_id=chosen.replica_id
            )
        return chosen

    def release(self, lease: Lease, outcome: Outcome = Outcome.OK) -> bool:
        """Give a lease back; whether it was still open (False changes nothing)."""
        if lease.epoch != self.epoch:
            return False
        return self.close(lease.owner, lease.lease_id, outcome)

    def close(self, owner: str, lease_id: int, outcome: Outcome = Outcome.OK) -> bool:
        """:meth:`release` by owner and id."""
        leases = self.leases.get(owner)
        held = leases.pop(lease_id, None) if leases else None
        if held is None:
            return False
        # The replica and session that were leased: others may go by their names by now.
        replica, session, prompt_tokens, session_id = held
        replica.in_flight -= 1
        replica.in_flight_tokens -= prompt_tokens
        if replica.in_flight == replica.limit - 1:
            self.candidates.settle(replica)
        else:
            self.candidates.touch(replica)
        session.open_leases -= 1
        session.last_used_s = now_s = self.journal.now_s
        at = replica.replica_id
        self._note((next(self._numbers), now_s, RELEASED, session_id, at, owner, 1, ""))
        if outcome >= Outcome.FAILED:
            self.rotation.fail(replica, outcome)
        elif (replica.failures or replica.trial) and outcome is Outcome.OK:
            self.rotation.succeed(replica)
        if not replica.in_flight and replica.state is ReplicaState.DRAINING:
            self._log(EventKind.DRAINED, replica_id=replica.replica_id)
        return True

    def release_owner(self, owner: str, keep: Collection[int] = ()) -> int:
        """Give back all that ``owner`` holds but ``keep``; how many leases that were."""
        leases = self.leases.get(owner, {})
        held = [(lease_id, leases[lease_id]) for lease_id in leases if lease_id not in keep]
        for lease_id, (replica, _, _, session_id) in held:
            self._log(EventKind.RECLAIMED, session_id, replica.replica_id, owner)
            self.close(owner, lease_id, Outcome.LEFT)
        return len(held)

    def drop_empty_owners(self) -> None:
        """Forget owners that hold nothing."""
        for owner in [owner for owner, leases in self.leases.items() if not leases]:
            del self.leases[owner]

    def begin(self, owner: str, turn: OpenTurn) -> bool:
        """Book a lease that a client gave itself on a pin; whether its replica is known."""
        replica = self.replicas.get(turn.replica_id)
        if replica is None or turn.lease_id in self.leases.get(owner, {}):
            return False
        session = self.sessions.adopt(turn.session_id, replica)
        self._hold(owner, turn.lease_id, (replica, session, turn.prompt_tokens, turn.session_id))
        return True

    def note(self, owner: str, usage: Usage) -> None:
        """Add to a session's history what a client reports of it."""
        replica = self.replicas.get(usage.replica_id)
        if replica is None:
            return
        turns = usage.local_turns
        session = self.sessions.adopt(usage.session_id, replica, is_pin=turns > 0)
        if turns:
            session.turns += turns
            session.turns_here += turns
            session.prompt_tokens += usage.prompt_tokens
            self.acquired += turns
            self.sticky += turns
            replica.acquired += turns
            self._log(EventKind.ACQUIRED, usage.session_id, usage.replica_id, owner, turns)
        if usage.known_prompt_tokens:
            self._compare_cached(session, replica, usage)
        session.sampled_tokens += usage.sampled_tokens
        session.cached_tokens += usage.cached_tokens
        if usage.context_tokens:
            session.context_tokens, session.context_at = usage.context_tokens, replica.cache
        session.last_used_s = self.journal.now_s

    def _compare_cached(self, session: SessionEntry, replica: ReplicaEntry, usage: Usage) -> None:
        """What should have been cached: the context of the turn before, if that ran here.

        Of several turns in one report only sums are known; they are taken to have run on one
        replica, each after the other and with no shorter a prompt than the other's context.
        """
        before = session.context_tokens if session.context_at is replica.cache else 0
        contexts = usage.known_prompt_tokens + usage.sampled_tokens
        within = max(0, contexts - usage.context_tokens)  # all but the last one's
        self.predicted_cached_tokens += min(before + within, usage.known_prompt_tokens)
        self.known_prompt_tokens += usage.known_prompt_tokens
        self.cached_tokens += usage.cached_tokens

    def _offered(self, chosen: ReplicaView) -> ReplicaEntry:
        name = getattr(chosen, "replica_id", None)
        replica = self.replicas.get(name) if name else None
        if replica is None or replica.state is not ReplicaState.READY:
            told = name or chosen
            raise ConfigError("policy", f"{self.policy!r} chose {told!r}, which was not offered")
        return replica

    def _hold(self, owner: str, lease_id: int, held: Held) -> None:
        leases = self.leases.get(owner)
        if leases is None:
            leases = self.leases[owner] = {}
        leases[lease_id] = held
        replica, session, prompt_tokens, _ = held
        replica.in_flight += 1
        replica.in_flight_tokens += prompt_tokens
        if replica.in_flight > replica.peak_in_flight:
            replica.peak_in_flight = replica.in_flight
        if replica.in_flight == replica.limit:
            self.candidates.settle(replica)
        else:
            self.candidates.touch(replica)
        session.open_leases += 1
        session.last_used_s = self.journal.now_s

    def move_session(self, session_id: str, replica_id: str) -> None:
        """Pin a session to another replica, from its next turn on.

        Raises:
            ConfigError: unknown session, or a replica that is unknown or not ready.
        """
        if session_id not in self.sessions.entries:
            raise ConfigError("session_id", f"unknown {session_id!r}")
        self.sessions.order_move(session_id, self.rotation.ready(replica_id))
