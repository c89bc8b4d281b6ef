"""Short words for the tests of the routing table and its exchange."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from workbench.config import RoutingConfig
from workbench.routing.policies import make_policy
from workbench.routing.table import RoutingTable
from workbench.routing.views import snapshot

if TYPE_CHECKING:
    from workbench.types import EventKind


def table(replicas=2, policy="sticky-least-loaded", *, seed=0, epoch=1, **rules):
    rng = random.Random(seed)
    made = RoutingTable(
        make_policy(policy, rng), rules=RoutingConfig(**rules), epoch=epoch, rng=rng
    )
    for i in range(replicas):
        made.rotation.add(f"replica-{i}")
    return made


def in_flight(books):
    return {name: replica.in_flight for name, replica in books.replicas.items()}


def load(books, replica_id="replica-0"):
    return next(r for r in snapshot(books).replicas if r.replica_id == replica_id)


def shares(books):
    """Sessions per replica."""
    return Counter(books.sessions.pins().values())


def kinds(books, cursor=0):
    """What happened, in order."""
    return [event.kind for event in books.journal.events(cursor).items]


def happened(books, kind: EventKind):
    """The events of one kind, as (session, replica, owner)."""
    events = books.journal.events().items
    return [(e.session_id, e.replica_id, e.owner) for e in events if e.kind is kind]
