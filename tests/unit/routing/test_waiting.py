"""The line of turns that wait: its order, what is offered when, and that nothing is left behind."""

from __future__ import annotations

import random
import weakref

import pytest
from hypothesis import HealthCheck, settings

from tests.unit.routing.books import in_flight, table
from tests.unit.routing.test_exchange import Client
from tests.unit.routing.test_state_machine import World
from workbench.errors import NoReplicaError
from workbench.routing import waiting
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Want
from workbench.routing.policies import Need
from workbench.routing.policies.sticky import StickyLeastLoaded
from workbench.routing.waiting import WaitingLine
from workbench.types import ReplicaState


class ByName:
    """Sends a session to the replica that it is named after; counts how often it is asked."""

    needs = frozenset({Need.FULL_REPLICAS})

    def __init__(self):
        self.asked = 0

    def choose(self, turn, pinned, candidates):
        self.asked += 1
        named = [view for view in candidates if view.replica_id == turn.session_id[:9]]
        return named[0] if named else candidates[0]


def talk(policy, replicas=2, **rules):
    books = table(replicas, policy, **rules)
    exchange = Exchange(books)
    alice = Client(exchange)
    alice.report()
    return books, exchange, alice


def waits_for(books):
    return {name: replica.queued for name, replica in books.replicas.items()}


def never_anew(monkeypatch):
    monkeypatch.setattr(waiting, "REPEATS", 0)


# ---------------------------------------------------------------------------- cost


def test_those_who_wait_for_a_full_replica_are_not_all_offered_each_time():
    policy = ByName()
    books, exchange, alice = talk(policy, capacity=1)
    alice.acquire("replica-0")
    for i in range(1000):
        alice.book.want(f"replica-0 {i}")
    alice.report()
    policy.asked = 0
    for _ in range(100):
        exchange.serve()
    assert 1000 <= policy.asked <= 100 * waiting.REPEATS + 1000
    assert waits_for(books) == {"replica-0": 1000, "replica-1": 0}


def test_a_few_are_all_offered_each_time():
    policy = ByName()
    _, exchange, alice = talk(policy, capacity=1)
    alice.acquire("replica-0")
    for i in range(waiting.REPEATS):
        alice.book.want(f"replica-0 {i}")
    alice.report()
    policy.asked = 0
    for _ in range(10):
        exchange.serve()
    assert policy.asked == 10 * waiting.REPEATS


class Name(str):
    """A string that tells when it is gone."""

    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("way", ["alone", "with its owner", "with all"])
@pytest.mark.parametrize("apart", [True, False])
def test_who_leaves_leaves_nothing_behind(way, apart):
    books = table(1, capacity=1)
    books.acquire("holds it")
    line = WaitingLine(books.replicas)
    name = Name("s")
    gone = weakref.ref(name)
    line.add("me", Want(1, name, 0, 0))
    line.add("you", Want(1, "t", 0, 0))
    del name
    if apart:
        line.serve(full, lambda: True)
        assert (line.apart, waits_for(books)) == (2, {"replica-0": 2})
    if way == "alone":
        assert line.remove("me", 1)
        assert not line.remove("me", 1)
    elif way == "with its owner":
        line.remove_owner("me")
    else:
        assert [want.lease_id for _, want in line.empty()] == [1, 1]
    assert gone() is None
    assert not line.waits("me")
    left = 0 if way == "with all" else 1
    assert (len(line), line.apart) == (left, left * apart)
    assert waits_for(books) == {"replica-0": left * apart}


def full(owner, want):
    raise NoReplicaError("it is full", replica_id="replica-0")


def test_those_whom_nothing_could_be_offered_still_wait_for_what_they_waited_for():
    books, _, alice = talk(ByName(), capacity=1)
    alice.acquire("replica-0")
    for i in range(2):
        alice.book.want(f"replica-0 {i}", priority=1)
    alice.report()
    assert alice.acquire("replica-1 urgent").replica_id == "replica-1"
    assert waits_for(books) == {"replica-0": 2, "replica-1": 0}


# ---------------------------------------------------------------------------- order


class Naive:
    """The same line, which offers everybody each time."""

    def __init__(self):
        self.places = []

    def serve(self, room):
        granted = []
        for place in sorted(self.places):
            if room.get(place[2], 0):
                room[place[2]] -= 1
                granted.append(place)
        self.places = [place for place in self.places if place not in granted]
        return [number for _, number, _ in granted]


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_granted_in_the_same_order_as_if_all_were_offered_each_time(seed, monkeypatch):
    never_anew(monkeypatch)
    rng = random.Random(seed)
    books = table(3, capacity=2)
    line, naive, granted, held = WaitingLine(books.replicas), Naive(), [], []

    def grant(owner, want):
        replica = books.replicas[want.session_id]
        if not replica.open:
            raise NoReplicaError("full", replica_id=want.session_id)
        hold(replica, 1)
        granted.append(want.lease_id)
        held.append(replica)

    def hold(replica, more):
        replica.in_flight += more
        books.candidates.settle(replica)

    for number in range(300):
        if rng.random() < 0.55:
            name, priority = f"replica-{rng.randrange(3)}", rng.randrange(2)
            line.add("me", Want(number, name, 0, priority))
            naive.places.append((priority, number, name))
        elif held:
            hold(held.pop(rng.randrange(len(held))), -1)
        if naive.places and rng.random() < 0.1:
            left = naive.places.pop(rng.randrange(len(naive.places)))
            assert line.remove("me", left[1])
        if rng.random() < 0.6:
            room = {name: r.limit - r.in_flight for name, r in books.replicas.items()}
            expected = naive.serve(room)
            granted.clear()
            line.serve(grant, lambda: books.candidates.num_open > 0)
            assert granted == expected
            assert sum(waits_for(books).values()) == line.apart
        assert len(line) == len(naive.places)


class TestWorldWhereNobodyIsOfferedAnew(World.TestCase):
    settings = settings(
        max_examples=50,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )

    @classmethod
    def setUpClass(cls):
        cls.repeats, waiting.REPEATS = waiting.REPEATS, 0

    @classmethod
    def tearDownClass(cls):
        waiting.REPEATS = cls.repeats


# ---------------------------------------------------------------------------- offered anew


def test_who_waits_for_a_replica_that_leaves_is_served_elsewhere(monkeypatch):
    never_anew(monkeypatch)
    books, exchange, alice = talk(ByName(), capacity=2)
    for i in range(4):
        alice.acquire(f"replica-0 {i}")
    assert waits_for(books) == {"replica-0": 2, "replica-1": 0}
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    exchange.serve()
    assert in_flight(books) == {"replica-0": 2, "replica-1": 2}
    assert exchange.queued == 0
    assert waits_for(books) == {"replica-0": 0, "replica-1": 0}


def test_a_replica_that_comes_takes_those_who_belong_there_at_once(monkeypatch):
    never_anew(monkeypatch)
    books, exchange, alice = talk(ByName(), 2, capacity=1)
    assert alice.acquire("replica-0 a")
    assert alice.acquire("replica-2 b") is None
    books.rotation.add("replica-2")
    exchange.serve()
    assert in_flight(books) == {"replica-0": 1, "replica-1": 0, "replica-2": 1}


def test_a_session_that_is_moved_while_it_waits_is_served_there_at_once(monkeypatch):
    never_anew(monkeypatch)
    books, exchange, alice = talk("sticky-least-loaded", capacity=1)
    home = alice.acquire("s").replica_id
    wanted = alice.book.want("s")
    alice.report()
    (other,) = books.replicas.keys() - {home}
    assert waits_for(books) == {home: 1, other: 0}
    books.move_session("s", other)
    exchange.serve()
    alice.news()
    assert alice.answers[wanted].replica_id == other


def test_a_policy_may_think_better_of_a_wait(monkeypatch):
    """The second replica gets emptier, and its first turn there is worth it then."""
    monkeypatch.setattr(waiting, "REPEATS", 1)
    books, exchange, alice = talk(StickyLeastLoaded(margin=1), capacity=3)
    home = alice.acquire("s").replica_id
    (other,) = books.replicas.keys() - {home}
    busy = []
    while in_flight(books)[other] < 2:
        busy.append(books.acquire(f"door {len(busy)}", "door"))
    while in_flight(books)[home] < 3:
        books.acquire("s", "door")
    wanted = alice.book.want("s")
    alice.report()
    assert waits_for(books)[home] == 1
    for lease in busy:
        if lease.replica_id == other:
            books.release(lease)
    exchange.serve()
    alice.news()
    assert alice.answers[wanted].replica_id == other


# ---------------------------------------------------------------------------- hopeless


def test_who_asks_long_after_the_last_replica_went_is_refused_at_the_next_tick():
    books, exchange, alice = talk("sticky-least-loaded", 1, no_replica_s=30.0)
    books.rotation.set_state("replica-0", ReplicaState.PAUSED)
    for now_s in (1.0, 9.0, 17.0, 25.0, 33.0):
        exchange.tick(now_s)
        alice.news()
    wanted = alice.book.want("s")
    alice.report()
    assert wanted not in alice.answers
    exchange.tick(33.1)
    alice.news()
    assert "replica-0 is paused" in str(alice.answers[wanted])
    books.rotation.set_state("replica-0", ReplicaState.READY)
    assert alice.acquire("s").replica_id == "replica-0"
