"""Clients that fall silent or come back, and a balancer that starts over."""

from __future__ import annotations

import pytest

from tests.unit.routing.books import happened, in_flight, table
from tests.unit.routing.test_exchange import talk
from workbench.routing.exchange import Exchange
from workbench.routing.journal import REVOCATIONS
from workbench.routing.views import check, snapshot
from workbench.types import EventKind, ReplicaState

# ---------------------------------------------------------------------------- clients


def test_a_silent_client_loses_its_leases_at_the_limit_and_no_other_does():
    books, exchange, alice, bob = talk(1, owner_timeout_s=10.0)
    alice.acquire("s")
    bob.acquire("t")
    exchange.tick(10.0)
    assert in_flight(books) == {"replica-0": 2}
    bob.news()
    exchange.tick(10.1)
    assert in_flight(books) == {"replica-0": 1}
    assert happened(books, EventKind.RECLAIMED) == [("s", "replica-0", "alice")]
    assert exchange.clients == ["bob"]


def test_a_silent_client_leaves_the_line():
    _, exchange, alice, bob = talk(1, capacity=1)
    holds = alice.acquire("s")
    bob.acquire("t")
    exchange.tick(9.0)
    alice.news()
    exchange.tick(15.0)
    assert exchange.queued == 0
    alice.book.give_back(holds)
    alice.report()
    assert exchange.table.leases.get("bob", {}) == {}


def test_what_a_silent_client_held_goes_to_those_who_wait():
    _, exchange, alice, bob = talk(1, capacity=1)
    alice.acquire("s")
    wanted = bob.book.want("t")
    bob.report()
    exchange.tick(9.0)
    bob.news()
    exchange.tick(11.0)
    bob.news()
    assert bob.answers[wanted].replica_id == "replica-0"


def test_a_client_that_comes_back_says_what_it_holds():
    books, exchange, alice, _ = talk(2)
    lease = alice.acquire("s", prompt_tokens=10)
    exchange.tick(20.0)
    assert sum(in_flight(books).values()) == 0
    assert alice.news().resync
    alice.report()
    assert in_flight(books)[lease.replica_id] == 1
    assert snapshot(books).in_flight_tokens == 10
    alice.book.give_back(lease)
    alice.report()
    assert sum(in_flight(books).values()) == 0


def test_a_client_that_says_everything_again_gives_nothing_back_by_that():
    books, _, alice, _ = talk(1)
    lease = alice.acquire("s")
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    lost = alice.book.report()
    alice.book.lost(lost)
    alice.report()
    assert in_flight(books) == {"replica-0": 1}
    for kind in (EventKind.RECLAIMED, EventKind.RELEASED, EventKind.DRAINED):
        assert happened(books, kind) == []
    alice.book.give_back(lease)
    alice.report()
    assert happened(books, EventKind.DRAINED) == [("", "replica-0", "")]


def test_what_was_given_back_in_a_report_that_got_lost_comes_back_with_the_next():
    books, _, alice, _ = talk(1)
    lease, other = alice.acquire("s"), alice.acquire("t")
    alice.book.give_back(lease)
    alice.book.lost(alice.book.report())
    alice.report()
    assert in_flight(books) == {"replica-0": 1}
    alice.book.give_back(other)
    alice.report()
    assert in_flight(books) == {"replica-0": 0}


def test_an_owner_at_the_door_is_missed_only_once_it_gave_a_sign_of_life():
    books, exchange, _, _ = talk(1)
    books.acquire("s", "gateway")
    books.acquire("t", "script")
    exchange.hear("gateway")
    exchange.tick(9.0)
    exchange.hear("gateway")
    exchange.tick(18.0)
    assert in_flight(books) == {"replica-0": 2}
    exchange.tick(20.0)
    assert happened(books, EventKind.RECLAIMED) == [("s", "replica-0", "gateway")]


def test_who_is_too_far_behind_forgets_all_pins():
    books, _, alice, _ = talk(1)
    alice.acquire("s")
    for _ in range(REVOCATIONS + 1):
        books.journal.void_session("another")
    assert alice.news().forget_pins
    assert alice.pinned("s") is None


def test_sessions_that_nobody_uses_are_forgotten_in_time_and_live_ones_never():
    books, exchange, alice, _ = talk(1, session_idle_s=100.0)
    for i in range(50):
        alice.book.give_back(alice.acquire(f"s{i}"))
    live = alice.acquire("live")
    for now_s in range(0, 300, 5):
        exchange.tick(float(now_s))
        alice.report()
    assert set(books.sessions.pins()) == {"live"}
    assert len(happened(books, EventKind.EVICTED)) == 50
    assert alice.book.give_back(live)


def test_clients_whose_pins_differ_since_one_of_them_ended_the_session_agree_after_a_turn():
    books, _, alice, bob = talk(2)
    home = alice.acquire("s").replica_id
    bob.book.end_session("s")
    bob.report()
    moved_to = bob.acquire("s").replica_id
    assert moved_to != home
    assert alice.book.take("s").replica_id == home
    alice.report()
    assert alice.pinned("s") is None
    assert alice.acquire("s").replica_id == moved_to
    check(books)


# ---------------------------------------------------------------------------- the balancer


def restarted(clients, replicas=2, *, recovery_s=1.0, policy="sticky-least-loaded"):
    """The next life of the balancer, which knows the replicas and nothing else."""
    books = table(replicas, policy, epoch=2, recovery_s=recovery_s)
    exchange = Exchange(books, recover_until_s=recovery_s)
    for client in clients:
        client.exchange = exchange
    return books, exchange


def test_a_balancer_that_starts_over_learns_leases_and_pins():
    _, _, alice, bob = talk()
    leases = [alice.acquire("s", prompt_tokens=10), bob.acquire("t")]
    alice.book.give_back(alice.acquire("idle"))
    before = alice.pinned("idle")
    alice.report()
    books, exchange = restarted([alice, bob])
    for client in (alice, bob):
        assert client.report().resync
        client.report()
    assert sum(in_flight(books).values()) == 2
    assert snapshot(books).in_flight_tokens == 10
    pins = {lease.session_id: lease.replica_id for lease in leases}
    assert books.sessions.pins() == {**pins, "idle": before}
    assert books.acquire("idle", "door").replica_id == before
    for client, lease in zip((alice, bob), leases, strict=True):
        assert client.book.give_back(lease)
        client.report()
    assert sum(in_flight(books).values()) == 1
    check(books)
    assert exchange.clients == ["alice", "bob"]


def test_a_late_reply_of_its_former_life_changes_nothing():
    _, exchange, alice, bob = talk()
    wanted = alice.book.want("s")
    late = exchange.exchange(report := alice.book.report())
    alice.book.lost(report)
    new_books, exchange = restarted([alice, bob], recovery_s=0.5)
    alice.report()
    exchange.tick(0.5)
    alice.news()
    lease = alice.answers[wanted]
    alice.hear(late)
    alice.report()
    assert new_books.leases["alice"].keys() == {lease.lease_id}


def test_until_the_clients_have_spoken_turns_of_unknown_sessions_wait():
    _, _, alice, bob = talk(4)
    home = alice.acquire("s").replica_id
    books, exchange = restarted([alice, bob], 4)
    wanted, new = bob.book.want("s"), bob.book.want("new")
    bob.report()
    bob.report()
    assert bob.answers == {}
    alice.report()
    alice.report()
    bob.news()
    assert bob.answers[wanted].replica_id == home
    assert new not in bob.answers
    exchange.tick(1.0)
    bob.news()
    assert bob.answers[new].replica_id in books.replicas


@pytest.mark.parametrize("late_s", [0.1, 5.0])
def test_replicas_that_it_hears_of_after_its_clients_have_their_leases_and_pins(late_s):
    _, _, alice, bob = talk(3)
    lease = alice.acquire("s", prompt_tokens=10)
    books, exchange = restarted([alice, bob], 0)
    for client in (alice, bob):
        client.report()
        client.report()
    exchange.tick(late_s)
    wanted = bob.book.want("s")
    bob.report()
    for i in range(3):
        books.rotation.add(f"replica-{i}")
    exchange.restored()
    exchange.serve()
    assert alice.news().resync
    assert exchange.queued == 1, "where the session is has yet to be said"
    for _ in range(2):
        for client in (alice, bob):
            client.news()
            client.report()
    assert in_flight(books)[lease.replica_id] >= 1
    assert lease.lease_id in books.leases["alice"]
    bob.news()
    assert bob.answers[wanted].replica_id == lease.replica_id
    check(books)


def test_clients_whose_pins_differ_after_a_restart_agree_again():
    _, _, alice, _ = talk()
    home = alice.acquire("s").replica_id
    others = (talk(seed=seed)[3] for seed in range(20))
    carol = next(other for other in others if other.acquire("s").replica_id != home)
    books, _ = restarted([alice, carol])
    for client in (alice, carol):
        client.report()
        client.report()
        client.news()
    alice.news()
    pins = {client.pinned("s") for client in (alice, carol)} - {None}
    assert pins <= {books.sessions.pins()["s"]}
