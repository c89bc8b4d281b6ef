"""When a replica leaves rotation, and what it has to prove to come back.

Closed → out after ``max_failures`` failed requests in a row, or at once when it died → probed, with
back-off → on trial: one request at a time until one succeeds → closed again. A failure on trial
takes it out again, for twice as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.routing.messages import Outcome
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.config import RoutingConfig
    from workbench.routing.entries import ReplicaEntry

MAX_BACKOFF_S = 30.0
"""Longest pause between two probes."""


def fail(replica: ReplicaEntry, outcome: Outcome, reason: str, rules: RoutingConfig) -> bool:
    """Count a failed request; whether the replica has to leave rotation."""
    replica.failures += 1
    replica.total_failures += 1
    if replica.state is not ReplicaState.READY:
        return False
    out = outcome is Outcome.DIED or replica.trial or replica.failures >= rules.max_failures
    if out:
        replica.reason = reason
    return out


def take_out(replica: ReplicaEntry, now_s: float, rules: RoutingConfig) -> None:
    """Out of rotation until a probe succeeds; the table changes its state."""
    replica.trial = False
    postpone_probe(replica, now_s, rules)


def postpone_probe(replica: ReplicaEntry, now_s: float, rules: RoutingConfig) -> None:
    """The next probe comes later than the last one did."""
    replica.backoff_s = min(MAX_BACKOFF_S, replica.backoff_s * 2 or rules.probe_s)
    replica.retry_at_s = now_s + replica.backoff_s


def start_trial(replica: ReplicaEntry) -> None:
    """A probe succeeded: one request may try, once the table has made it ready."""
    replica.trial = True
    replica.limit = 1


def close(replica: ReplicaEntry) -> None:
    """A request succeeded: all is forgotten."""
    replica.failures = 0
    replica.backoff_s = 0.0
    replica.reason = ""
    replica.trial = False
    replica.limit = replica.capacity
