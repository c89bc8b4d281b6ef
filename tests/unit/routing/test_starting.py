"""Replicas that are about to come, requests that came past the books, caches that are void."""

from __future__ import annotations

import pytest

from tests.unit.routing.books import in_flight, table
from tests.unit.routing.test_exchange import Client
from workbench.errors import NoReplicaError
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Usage
from workbench.types import EngineFigures, ReplicaState


def refused(books):
    with pytest.raises(NoReplicaError) as told:
        books.acquire("s")
    return str(told.value)


# -- replicas that are about to come -----------------------------------------------------------


def test_who_finds_no_replica_is_told_which_are_starting():
    books = table(0)
    books.rotation.starting = frozenset({"replica-7", "replica-1"})
    assert refused(books).endswith("replica-1 is starting, replica-7 is starting")
    books.rotation.add("replica-1", ReplicaState.PAUSED)
    assert refused(books).endswith("replica-1 is paused, replica-7 is starting")
    books.rotation.starting = frozenset()
    assert "starting" not in refused(books)


def test_turns_wait_as_long_as_a_replica_is_about_to_come_and_not_longer():
    books = table(0, no_replica_s=5.0, owner_timeout_s=1e6)
    exchange = Exchange(books)
    alice = Client(exchange)
    books.rotation.starting = frozenset({"replica-0"})
    alice.book.want("s")
    alice.report()
    for now_s in (0.0, 100.0, 1000.0):
        exchange.tick(now_s)
    assert exchange.queued == 1
    books.rotation.starting = frozenset()
    exchange.tick(1000.1)  # from here on nothing comes
    exchange.tick(1005.0)
    assert exchange.queued == 1
    exchange.tick(1005.2)
    assert exchange.queued == 0


def test_one_that_came_takes_those_who_waited_for_it():
    books = table(0, no_replica_s=5.0, owner_timeout_s=1e6)
    exchange = Exchange(books)
    alice = Client(exchange)
    books.rotation.starting = frozenset({"replica-0"})
    alice.book.want("s")
    alice.report()
    exchange.tick(1000.0)
    books.rotation.add("replica-0")
    books.rotation.starting = frozenset()
    exchange.tick(1000.1)
    assert (exchange.queued, in_flight(books)) == (0, {"replica-0": 1})


# -- requests that came past the books ---------------------------------------------------------


def outside(books, replica_id, requests):
    books.rotation.set_engine(replica_id, EngineFigures(external=requests))


def test_what_came_past_the_books_counts_where_new_sessions_go():
    books = table(2)
    outside(books, "replica-0", 3)
    for number in range(3):
        assert books.acquire(f"s{number}").replica_id == "replica-1"
    assert books.replicas["replica-0"].load == books.replicas["replica-1"].load == 3
    assert in_flight(books) == {"replica-0": 0, "replica-1": 3}, "the books are of leases alone"
    outside(books, "replica-0", 1)
    assert books.acquire("s3").replica_id == "replica-0"


def test_it_moves_a_session_away_as_leases_would_and_is_forgotten_with_the_figures():
    books = table(2)
    lease = books.acquire("s")
    here, there = lease.replica_id, {"replica-0", "replica-1"} - {lease.replica_id}
    books.release(lease)
    outside(books, here, 1)
    stays = books.acquire("s")
    assert stays.replica_id == here, "a little more is no reason to leave a cache behind"
    books.release(stays)
    outside(books, here, 1000)
    moved = books.acquire("s")
    assert {moved.replica_id} == there
    books.rotation.set_engine(here, None)
    assert books.replicas[here].external == 0


def test_who_starts_turns_alone_has_to_ask_once_much_came_past_the_books():
    books = table(2)
    lease = books.acquire("s")
    replica = books.replicas[lease.replica_id]
    assert books.rotation.may_start_alone(replica)
    stamp = books.journal.revocations.last
    outside(books, lease.replica_id, 1000)
    assert not books.rotation.may_start_alone(replica)
    assert books.journal.revocations.last > stamp, "pins that clients hold are void"
    outside(books, lease.replica_id, 0)
    assert books.rotation.may_start_alone(replica)


def test_it_takes_no_place_of_those_that_a_replica_has():
    books = table(1, capacity=2)
    outside(books, "replica-0", 50)
    assert books.acquire("a")
    assert books.acquire("b")
    assert "2 of 2 in flight" in refused(books)


# -- caches that are void ----------------------------------------------------------------------


def turn(books, now_s, prompt_tokens, sampled_tokens):
    """A turn of one session, which has all of its context in the prompt."""
    books.journal.now_s = now_s
    lease = books.acquire("s")
    context = prompt_tokens + sampled_tokens
    books.release(lease)
    books.note("", Usage("s", "replica-0", 0, 0, sampled_tokens, 0, context, prompt_tokens))
    return context


@pytest.mark.parametrize("forgets", [True, False])
def test_what_was_computed_under_other_weights_is_not_expected_to_be_cached(forgets):
    books = table(1)
    context = turn(books, 1.0, 100, 20)
    before = books.predicted_cached_tokens
    books.journal.now_s = 2.0
    if forgets:
        books.rotation.forget_cache("replica-0")
        books.rotation.forget_cache("unknown")
    context = turn(books, 3.0, context + 10, 20)
    assert books.predicted_cached_tokens - before == (0 if forgets else 120)
    before = books.predicted_cached_tokens
    turn(books, 4.0, context + 10, 20)
    assert books.predicted_cached_tokens - before == 150, "what came after is"


def test_a_policy_that_follows_prefixes_forgets_what_a_replica_had():
    books = table(2, "prefix-aware")
    blocks = tuple(range(20))
    first = books.acquire("a", prompt_tokens=320, blocks=blocks)
    assert books.acquire("b", prompt_tokens=320, blocks=blocks).replica_id == first.replica_id
    books.rotation.forget_cache(first.replica_id)
    assert books.acquire("c", prompt_tokens=320, blocks=blocks).replica_id != first.replica_id
