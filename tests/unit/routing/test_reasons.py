"""The event log says why a session moved, and why a replica went down."""

from __future__ import annotations

import pytest

from tests.unit.routing.books import table
from workbench.config import RoutingConfig
from workbench.routing.messages import Outcome
from workbench.routing.policies import StickyLeastLoaded
from workbench.types import EventKind, ReplicaState


def reasons(books, kind):
    return [event.reason for event in books.journal.events().items if event.kind is kind]


def moves(books):
    return reasons(books, EventKind.MOVED)


def test_a_pin_that_yields_to_load_says_so():
    books = table(2, StickyLeastLoaded(margin=1))
    home = books.acquire("s").replica_id
    for _ in range(4):
        lease = books.acquire("s")
    assert lease.replica_id != home
    assert moves(books) == ["load"]


def test_a_policy_that_turns_elsewhere_without_need_says_so():
    books = table(2, "round-robin")
    for _ in range(3):
        books.release(books.acquire("s"))
    assert moves(books) == ["policy", "policy"]


@pytest.mark.parametrize(
    "state", [ReplicaState.DRAINING, ReplicaState.PAUSED, ReplicaState.UNHEALTHY]
)
def test_a_session_that_left_a_replica_which_could_not_take_it_says_what_that_was(state):
    books = table(2)
    home = books.acquire("s").replica_id
    books.rotation.set_state(home, state)
    books.acquire("s")
    assert moves(books) == [state.value]
    assert reasons(books, EventKind.REPLICA_DOWN) == [state.value]


def test_a_session_whose_replica_was_removed_says_so():
    books = table(2)
    books.rotation.remove(books.acquire("s").replica_id)
    books.acquire("s")
    assert moves(books) == ["gone"]
    assert reasons(books, EventKind.REPLICA_DOWN) == ["removed"]


def test_a_session_whose_replica_is_on_trial_says_so():
    books = table(2)
    lease = books.acquire("s")
    books.release(lease, Outcome.DIED)
    books.rotation.probed(lease.replica_id)
    books.acquire("s")
    assert moves(books) == ["trial"]


def test_a_session_that_somebody_moved_says_so_once():
    books = table(2)
    home = books.acquire("s").replica_id
    books.move_session("s", {"replica-0": "replica-1", "replica-1": "replica-0"}[home])
    books.acquire("s")
    assert moves(books) == ["asked"]


def test_a_replica_that_is_unhealthy_says_what_happened_on_it():
    books = table(2)
    books.release(books.acquire("s"), Outcome.DIED)
    for _ in range(RoutingConfig().max_failures):
        books.release(books.acquire("s"), Outcome.FAILED)
    assert reasons(books, EventKind.REPLICA_DOWN) == ["its engine died", "requests failed on it"]


def test_why_it_was_down_before_is_not_why_it_drains():
    books = table(1)
    books.release(books.acquire("s"), Outcome.DIED)
    books.rotation.probed("replica-0")
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    assert reasons(books, EventKind.REPLICA_DOWN) == ["its engine died", "draining"]


def test_turns_need_no_reason():
    books = table(1)
    books.release(books.acquire("s"))
    assert reasons(books, EventKind.ACQUIRED) == reasons(books, EventKind.RELEASED) == [""]
