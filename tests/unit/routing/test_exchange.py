"""What the balancer and its clients tell each other, and what each then knows."""

from __future__ import annotations

import copy

import pytest

from tests.unit.routing.books import happened, in_flight, table
from workbench.client.leases import LeaseBook
from workbench.errors import NoReplicaError
from workbench.routing.exchange import Exchange
from workbench.routing.messages import Outcome
from workbench.routing.policies import Need
from workbench.routing.policies.sticky import StickyLeastLoaded
from workbench.routing.views import check, snapshot
from workbench.types import EventKind, Lease, ReplicaState


class Client:
    """A client whose wire never fails by itself."""

    def __init__(self, exchange, name="me"):
        self.exchange = exchange
        self.book = LeaseBook(name)
        self.answers: dict[int, Lease | Exception] = {}

    def hear(self, reply):
        self.answers.update(self.book.apply(reply))
        return reply

    def report(self):
        """One round trip."""
        return self.hear(self.exchange.exchange(self.book.report()))

    def news(self):
        """What the long poll brings, if anything."""
        reply = self.exchange.news(self.book.owner, self.book.cursor)
        return reply and self.hear(reply)

    def acquire(self, session, **want):
        """Ask and report; the lease, or None while it waits."""
        lease_id = self.book.want(session, **want)
        self.report()
        return self.answers.get(lease_id)

    def pinned(self, session):
        """Where it would start a turn without asking."""
        lease = self.book.take(session)
        if lease is not None:
            self.book.give_back(lease)
        return lease and lease.replica_id


def talk(replicas=2, policy="sticky-least-loaded", **options):
    """A table and its exchange, with two clients that have said hello."""
    books = table(replicas, policy, **options)
    exchange = Exchange(books)
    alice, bob = Client(exchange, "alice"), Client(exchange, "bob")
    alice.report()
    bob.report()
    return books, exchange, alice, bob


# ---------------------------------------------------------------------------- turns


def test_turns_that_are_wanted_together_come_in_one_exchange_and_spread():
    books, _, alice, _ = talk(4)
    wanted = [alice.book.want(f"s{i}", prompt_tokens=10) for i in range(8)]
    alice.report()
    assert [alice.answers[lease_id].session_id for lease_id in wanted] == [
        f"s{i}" for i in range(8)
    ]
    assert set(in_flight(books).values()) == {2}
    assert snapshot(books).in_flight_tokens == 80


def test_turns_on_a_pin_need_no_call_and_are_counted_with_the_next_report():
    books, _, alice, _ = talk()
    alice.book.give_back(alice.acquire("s"))
    lease = alice.book.take("s", 100)
    assert sum(in_flight(books).values()) == 1, "it has not heard of either"
    alice.report()
    assert in_flight(books)[lease.replica_id] == 1
    assert snapshot(books).in_flight_tokens == 100
    assert (snapshot(books).acquired, snapshot(books).sticky) == (2, 1)
    assert alice.book.give_back(lease, sampled_tokens=5, context_tokens=105)
    assert not alice.book.give_back(lease)
    alice.report()
    assert set(in_flight(books).values()) == {0}
    (info,) = books.sessions.infos(0, 10)
    assert (info.turns, info.sampled_tokens, info.in_flight) == (2, 5, 0)


def test_turns_at_the_door_and_of_clients_are_counted_alike():
    books, _, alice, _ = talk(1)
    lease = alice.acquire("s", prompt_tokens=7)
    at_the_door = books.acquire("t", "gateway", prompt_tokens=7)
    assert in_flight(books) == {"replica-0": 2}
    assert snapshot(books).in_flight_tokens == 14
    assert len(happened(books, EventKind.ACQUIRED)) == 2
    alice.book.give_back(lease)
    books.release(at_the_door)
    alice.report()
    assert in_flight(books) == {"replica-0": 0}


def test_a_report_that_arrives_twice_changes_nothing():
    books, exchange, alice, _ = talk()
    lease = alice.acquire("s")
    alice.book.take("s")
    alice.book.give_back(lease)
    report = alice.book.report()
    exchange.exchange(report)
    before = snapshot(books)
    exchange.exchange(copy.deepcopy(report))
    assert snapshot(books) == before


def test_an_old_report_of_everything_undoes_nothing():
    books, exchange, _, _ = talk(1)
    carol = Client(exchange, "carol")
    hello = carol.book.report()
    carol.hear(exchange.exchange(hello))
    lease = carol.acquire("s")
    exchange.exchange(hello)
    assert in_flight(books) == {"replica-0": 1}
    carol.book.give_back(lease)
    carol.report()
    assert in_flight(books) == {"replica-0": 0}


def test_a_grant_whose_answer_was_lost_is_given_again():
    books, exchange, alice, _ = talk()
    wanted = alice.book.want("s")
    lost = alice.book.report()
    exchange.exchange(lost)
    alice.book.lost(lost)
    assert wanted not in alice.answers
    alice.report()
    assert alice.answers[wanted].lease_id == wanted
    assert sum(in_flight(books).values()) == 1
    check(books)


@pytest.mark.parametrize("when", ["before it was sent", "while it waits", "when it is granted"])
def test_a_cancelled_turn_leaves_the_line_and_leaks_nothing(when):
    books, exchange, alice, bob = talk(1, capacity=1)
    holds = bob.acquire("b")
    wanted = alice.book.want("s")
    if when == "before it was sent":
        alice.book.withdraw(wanted)
        alice.report()
    elif when == "while it waits":
        alice.report()
        assert exchange.queued == 1
        alice.book.withdraw(wanted)
        alice.report()
    else:
        alice.report()
        bob.book.give_back(holds)
        bob.report()
        alice.book.withdraw(wanted)
        alice.news()
        alice.report()
    assert exchange.queued == 0
    bob.book.give_back(holds)
    bob.report()
    alice.news()
    assert in_flight(books) == {"replica-0": 0}
    assert wanted not in alice.answers


# ---------------------------------------------------------------------------- the line


def test_who_waits_is_served_by_priority_and_then_in_order():
    _, exchange, alice, bob = talk(1, capacity=1)
    holds = bob.acquire("b")
    wanted = {
        name: alice.book.want(name, priority=priority)
        for name, priority in (("late", 1), ("later", 1), ("urgent", 0))
    }
    alice.report()
    assert "is full (1 of 1 in flight)" in alice.book.waiting
    served = []
    book, lease = bob.book, holds
    for _ in wanted:
        book.give_back(lease)
        (bob if book is bob.book else alice).report()
        alice.news()
        (name,) = [n for n, i in wanted.items() if i in alice.answers and n not in served]
        served.append(name)
        book, lease = alice.book, alice.answers[wanted[name]]
    assert served == ["urgent", "late", "later"]
    assert exchange.queued == 0


class OnePerName:
    """Sends a session to the replica that it is named after, full or not."""

    needs = frozenset({Need.FULL_REPLICAS})

    def choose(self, turn, pinned, candidates):
        return next(view for view in candidates if view.replica_id == turn.session_id[:9])


def test_who_waits_for_one_full_replica_lets_the_others_pass():
    _, exchange, alice, _ = talk(2, OnePerName(), capacity=1)
    holds = alice.acquire("replica-0 a")
    assert alice.acquire("replica-0 b") is None
    assert alice.acquire("replica-1 c").replica_id == "replica-1"
    assert exchange.queued == 1
    alice.book.give_back(holds)
    alice.report()
    assert exchange.queued == 0


def test_nobody_waits_longer_than_the_limit_while_no_replica_is_ready():
    books, exchange, alice, _ = talk(2, no_replica_s=30.0)
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    books.rotation.fail(books.rotation.get("replica-1"), Outcome.DIED, "its process ended with -9")
    wanted = alice.book.want("s")
    alice.report()
    for now_s in (1.0, 8.0, 16.0, 24.0, 30.9):
        exchange.tick(now_s)
        alice.news()
    assert wanted not in alice.answers
    exchange.tick(31.0)
    alice.news()
    refused = alice.answers[wanted]
    assert isinstance(refused, NoReplicaError)
    assert "replica-0 is draining" in str(refused)
    assert "replica-1 is unhealthy (its process ended with -9)" in str(refused)
    assert exchange.queued == 0


def test_who_waits_is_served_when_a_replica_comes():
    books, exchange, alice, _ = talk(0)
    wanted = alice.book.want("s")
    alice.report()
    for now_s in (9.0, 18.0, 27.0):
        exchange.tick(now_s)
        alice.news()
    books.rotation.add("replica-0")
    exchange.tick(29.0)
    alice.news()
    assert alice.answers[wanted].replica_id == "replica-0"


class Picky:
    def choose(self, turn, pinned, candidates):
        if turn.session_id == "bad":
            raise ZeroDivisionError(turn.session_id)
        return candidates[0]


def test_an_error_of_the_policy_reaches_the_turn_that_it_was_for_and_no_other():
    books, _, alice, bob = talk(2, Picky())
    wanted = {name: alice.book.want(name) for name in ("good", "bad", "better")}
    alice.report()
    assert isinstance(alice.answers[wanted["bad"]], ZeroDivisionError)
    assert alice.answers[wanted["good"]].replica_id == "replica-0"
    assert alice.answers[wanted["better"]].replica_id == "replica-0"
    assert bob.acquire("fine").replica_id == "replica-0"
    assert in_flight(books) == {"replica-0": 3, "replica-1": 0}


# ---------------------------------------------------------------------------- pins


def test_two_clients_get_the_same_pin():
    _, _, alice, bob = talk(4)
    home = alice.acquire("s").replica_id
    assert bob.acquire("s").replica_id == home
    assert alice.pinned("s") == bob.pinned("s") == home


@pytest.mark.parametrize("how", ["drain", "pause", "remove", "die", "move"])
def test_every_client_hears_within_one_reply_that_a_pin_is_void(how):
    books, _, alice, bob = talk(3)
    home = alice.acquire("s").replica_id
    other = next(name for name in books.replicas if name != home)
    bob.acquire("s")
    if how == "remove":
        books.rotation.remove(home)
    elif how == "die":
        books.rotation.fail(books.rotation.get(home), Outcome.DIED)
    elif how == "move":
        books.move_session("s", other)
    else:
        state = ReplicaState.DRAINING if how == "drain" else ReplicaState.PAUSED
        books.rotation.set_state(home, state)
    alice.news()
    bob.report()
    assert alice.pinned("s") is None
    assert bob.pinned("s") is None
    moved_to = alice.acquire("s").replica_id
    assert moved_to != home
    assert bob.acquire("s").replica_id == moved_to


def test_pins_elsewhere_stay_good():
    books, _, alice, _ = talk(2)
    homes = {session: alice.acquire(session).replica_id for session in ("s", "t")}
    books.rotation.set_state(homes["s"], ReplicaState.DRAINING)
    alice.news()
    assert (alice.pinned("s"), alice.pinned("t")) == (None, homes["t"])


def test_when_a_session_moves_for_one_client_the_other_one_follows():
    books, _, alice, bob = talk(2, StickyLeastLoaded(margin=2))
    home = alice.acquire("s").replica_id
    for _ in range(2):
        assert books.acquire("s", "door").replica_id == home
    moved_to = bob.acquire("s").replica_id
    assert moved_to != home
    alice.news()
    assert alice.pinned("s") in (None, moved_to)
    assert alice.acquire("s").replica_id == moved_to


def test_turns_of_an_overloaded_replica_have_to_be_asked_for():
    books, _, alice, _ = talk(2, StickyLeastLoaded(margin=2))
    home = alice.acquire("s").replica_id
    while alice.pinned("s") and len(books.leases["alice"]) < 20:
        alice.book.take("s")
        alice.report()
    assert len(books.leases["alice"]) == 3, "the margin of 2, and the one that exceeded it"
    assert alice.acquire("s").replica_id != home


def test_a_session_that_stays_on_an_overloaded_replica_asks_for_each_turn():
    books, _, alice, _ = talk(2)
    lease = alice.acquire("s")
    alice.book.give_back(lease, context_tokens=100_000)
    alice.report()
    for _ in range(4):
        assert books.acquire("s", "door").replica_id == lease.replica_id
    assert alice.acquire("s").replica_id == lease.replica_id, "its context is worth the wait"
    assert alice.pinned("s") is None


def test_a_grant_that_is_given_again_is_for_one_turn():
    """Its replica may have stopped taking work since it was given first."""
    books, exchange, alice, _ = talk(2)
    wanted = alice.book.want("s")
    report = alice.book.report()
    (grant,) = exchange.exchange(report).grants
    books.rotation.set_state(grant.replica_id, ReplicaState.DRAINING)
    alice.hear(exchange.exchange(report))
    assert alice.answers[wanted].replica_id == grant.replica_id
    assert alice.pinned("s") is None


def test_with_a_limit_every_turn_is_asked_for():
    _, _, alice, _ = talk(2, capacity=5)
    alice.acquire("s")
    assert alice.pinned("s") is None


# ---------------------------------------------------------------------------- deaths


def test_a_failure_before_the_balancer_knew_of_the_turn_counts_too():
    books, _, alice, _ = talk(2)
    home = alice.acquire("s").replica_id
    alice.book.give_back(alice.book.take("s"), Outcome.DIED)
    alice.report()
    assert books.rotation.get(home).state is ReplicaState.UNHEALTHY
    assert alice.acquire("s").replica_id != home


def test_a_failure_on_a_replica_that_was_replaced_is_not_held_against_the_new_one():
    books, _, alice, _ = talk(1)
    alice.acquire("s")
    alice.book.give_back(alice.book.take("s"), Outcome.DIED)
    books.rotation.remove("replica-0")
    books.rotation.add("replica-0")
    alice.report()
    assert books.rotation.get("replica-0").state is ReplicaState.READY
    assert books.rotation.get("replica-0").total_failures == 0


def test_a_failure_on_trial_makes_no_pin_and_takes_it_out_again():
    books, _, alice, _ = talk(1)
    alice.book.give_back(alice.acquire("s"), Outcome.DIED)
    alice.report()
    books.rotation.probed("replica-0")
    trial = alice.acquire("s")
    assert alice.pinned("s") is None
    assert alice.acquire("t") is None
    alice.book.give_back(trial, Outcome.FAILED)
    alice.report()
    assert books.rotation.get("replica-0").state is ReplicaState.UNHEALTHY
