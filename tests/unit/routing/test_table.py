"""The routing table keeps its books: leases, sessions, replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.routing.books import happened, in_flight, load, shares, table
from workbench.errors import ConfigError, NoReplicaError
from workbench.routing.messages import Usage
from workbench.routing.policies import Need
from workbench.routing.views import check, snapshot
from workbench.types import EventKind, Lease, ReplicaState

# ---------------------------------------------------------------------------- leases


def test_a_lease_is_given_back_once():
    books = table(1)
    lease, other = books.acquire("s", "me"), books.acquire("s", "me")
    assert (lease.session_id, lease.replica_id, lease.owner) == ("s", "replica-0", "me")
    assert books.release(lease)
    assert not books.release(lease)
    assert in_flight(books) == {"replica-0": 1}
    assert books.release(other)
    assert in_flight(books) == {"replica-0": 0}
    assert len(happened(books, EventKind.RELEASED)) == 2


def test_a_lease_that_never_was_is_not_given_back():
    books = table(1)
    lease = books.acquire("s", "me")
    assert not books.release(replace(lease, owner="mallory"))
    assert not books.release(replace(lease, lease_id=lease.lease_id + 1))
    assert in_flight(books) == {"replica-0": 1}


def test_a_release_from_an_older_life_of_the_balancer_changes_nothing():
    old, new = table(epoch=1), table(epoch=2)
    late = old.acquire("s", "me")
    assert new.acquire("s", "me").lease_id == late.lease_id
    assert not new.release(late)
    assert sum(in_flight(new).values()) == 1


def test_a_late_release_does_not_lower_the_count_of_a_replica_that_was_added_again():
    books = table(1)
    late = books.acquire("s", "me", prompt_tokens=100)
    books.rotation.remove("replica-0")
    books.rotation.add("replica-0")
    assert in_flight(books) == {"replica-0": 0}
    books.acquire("t", "me", prompt_tokens=10)
    assert books.release(late)
    assert in_flight(books) == {"replica-0": 1}
    assert load(books).in_flight_tokens == 10


def test_a_replica_that_is_there_is_not_added_again():
    books = table(1)
    books.acquire("s", "me")
    with pytest.raises(ConfigError, match="'replica-0' is in the table already"):
        books.rotation.add("replica-0")
    assert in_flight(books) == {"replica-0": 1}


def test_prompt_tokens_are_counted_while_their_turns_are_in_flight():
    books = table(1)
    first = books.acquire("s", "me", prompt_tokens=1000)
    books.acquire("t", "me", prompt_tokens=24)
    assert load(books).in_flight_tokens == 1024
    books.release(first)
    assert load(books).in_flight_tokens == 24
    assert books.sessions.entries["s"].prompt_tokens == 1000


def test_the_peak_remembers_what_was_in_flight_together():
    books = table(1)
    for lease in [books.acquire(f"s{i}", "me") for i in range(3)]:
        books.release(lease)
    mine = load(books)
    assert (mine.in_flight, mine.peak_in_flight, mine.acquired) == (0, 3, 3)


def test_an_owner_gets_rid_of_its_leases_and_of_no_others():
    books = table()
    for owner in ("alice", "alice", "bob"):
        books.acquire("s", owner)
    assert books.release_owner("alice") == 2
    assert books.release_owner("alice") == 0
    assert sum(in_flight(books).values()) == 1
    assert {owner for _, _, owner in happened(books, EventKind.RECLAIMED)} == {"alice"}


def test_a_lease_unpacks_as_replica_and_handle():
    replica_id, handle = Lease(1, "s", "replica-0", "me", 0, handle="the actor")
    assert (replica_id, handle) == ("replica-0", "the actor")


# ---------------------------------------------------------------------------- spreading


@settings(max_examples=50, deadline=None)
@given(
    sessions=st.integers(0, 60),
    replicas=st.integers(1, 7),
    seed=st.integers(0, 3),
    one_by_one=st.booleans(),
)
def test_sessions_opened_while_idle_land_within_one_of_each_other(
    sessions, replicas, seed, one_by_one
):
    books = table(replicas, seed=seed)
    for i in range(sessions):
        lease = books.acquire(f"s{i}", "me")
        if one_by_one:
            books.release(lease)
    counts = [shares(books)[replica] for replica in books.replicas]
    assert max(counts) - min(counts) <= 1


def test_the_first_session_does_not_always_land_on_the_first_replica():
    first = [table(4, seed=seed).acquire("s", "me").replica_id for seed in range(40)]
    assert set(first) == {f"replica-{i}" for i in range(4)}


def test_the_same_seed_spreads_the_same_way():
    def run():
        books = table(8, seed=5)
        return [books.acquire(f"s{i}", "me").replica_id for i in range(64)]

    runs = [run() for _ in range(10)]
    assert all(other == runs[0] for other in runs)


@pytest.mark.parametrize("policy", ["least-loaded", "power-of-two", "sticky-least-loaded"])
def test_a_burst_without_any_release_still_spreads(policy):
    books = table(4, policy)
    for i in range(2000):
        books.acquire(f"s{i}", "me", prompt_tokens=100)
    counts = in_flight(books).values()
    assert max(counts) - min(counts) <= 20


# ---------------------------------------------------------------------------- capacity


def test_a_full_replica_gets_no_work_until_something_is_given_back():
    books = table(2, capacity=2)
    leases = [books.acquire(f"s{i}", "me") for i in range(4)]
    assert set(in_flight(books).values()) == {2}
    with pytest.raises(
        NoReplicaError, match=r"replica-0 is full \(2 of 2 in flight\), replica-1 is full"
    ):
        books.acquire("s4", "me")
    assert set(in_flight(books).values()) == {2}
    assert "s4" not in books.sessions.entries
    books.release(leases[0])
    assert books.acquire("s4", "me").replica_id == leases[0].replica_id
    assert load(books).capacity == 2


def test_a_full_replica_that_is_down_and_up_again_is_still_full():
    books = table(1, capacity=1)
    lease = books.acquire("s", "me")
    books.rotation.set_state("replica-0", ReplicaState.PAUSED)
    books.rotation.set_state("replica-0", ReplicaState.READY)
    with pytest.raises(NoReplicaError, match="is full"):
        books.acquire("t", "me")
    books.release(lease)
    books.acquire("t", "me")


# ---------------------------------------------------------------------------- sessions


def test_a_session_comes_back_to_its_replica():
    books = table(4)
    home = books.acquire("s", "me")
    books.release(home)
    for i in range(20):
        books.release(books.acquire(f"other-{i}", "me"))
    assert books.acquire("s", "me").replica_id == home.replica_id


def test_two_clients_see_the_same_pin():
    books = table(4)
    assert books.acquire("s", "alice").replica_id == books.acquire("s", "bob").replica_id


def test_a_session_that_is_moved_goes_there_with_its_next_turn():
    books = table(2)
    home = books.acquire("s", "me").replica_id
    other = ({"replica-0", "replica-1"} - {home}).pop()
    books.move_session("s", other)
    assert books.acquire("s", "me").replica_id == other
    assert happened(books, EventKind.MOVED) == [("s", other, "")]
    books.move_session("s", other)
    assert (snapshot(books).moves, load(books, other).moved_here) == (1, 1)


def test_a_session_is_moved_only_to_what_can_take_it():
    books = table(3)
    books.acquire("s", "me")
    home = books.sessions.pins()["s"]
    books.rotation.set_state("replica-1", ReplicaState.DRAINING)
    for session, replica, message in (
        ("unknown", "replica-0", "session_id: unknown 'unknown'"),
        ("s", "replica-9", r"unknown 'replica-9' .allowed: replica-0, replica-1, replica-2"),
        ("s", "replica-1", r"replica-1 is draining .allowed: replica-0, replica-2"),
    ):
        with pytest.raises(ConfigError, match=message):
            books.move_session(session, replica)
    expected = None if home == "replica-1" else home
    assert expected is None or books.sessions.pins()["s"] == expected


def test_ending_a_session_keeps_its_open_leases_counted():
    books = table(1)
    lease = books.acquire("s", "me")
    assert books.sessions.end("s")
    assert not books.sessions.end("s")
    assert in_flight(books) == {"replica-0": 1}
    assert books.release(lease)
    assert in_flight(books) == {"replica-0": 0}
    assert happened(books, EventKind.ENDED) == [("s", "replica-0", "")]


def test_a_session_that_came_back_is_not_charged_for_its_former_leases():
    books = table()
    former = books.acquire("s", "me")
    books.sessions.end("s")
    books.acquire("s", "me")
    books.release(former)
    check(books)
    books.journal.now_s = 100.0
    assert books.sessions.expire(1.0, 10) == 0, "it has a request in flight"


def test_idle_sessions_expire_and_live_ones_do_not():
    books = table()
    books.release(books.acquire("idle", "me"))
    books.acquire("in-flight", "me")
    lease = books.acquire("recent", "me")
    books.journal.now_s = 10.0
    books.release(lease)
    books.journal.now_s = 14.0
    assert books.sessions.expire(5.0, 10) == 1
    assert set(books.sessions.pins()) == {"in-flight", "recent"}
    assert [session for session, _, _ in happened(books, EventKind.EVICTED)] == ["idle"]
    books.journal.now_s = 15.0
    assert books.sessions.expire(5.0, 10) == 1, "it idles since its last lease came back"


def test_sessions_expire_a_few_at_a_time():
    books = table()
    for i in range(10):
        books.release(books.acquire(f"s{i}", "me"))
    books.journal.now_s = 100.0
    assert [books.sessions.expire(5.0, 4) for _ in range(4)] == [4, 4, 2, 0]
    assert books.sessions.pins() == {}
    check(books)


def test_a_removed_replica_pins_nothing():
    books = table(2)
    home = books.acquire("s", "me").replica_id
    books.rotation.remove(home)
    assert books.sessions.pins() == {"s": None}
    books.rotation.add(home)
    assert books.sessions.pins() == {"s": None}
    check(books)
    books.acquire("s", "me")
    assert books.sessions.pins()["s"] is not None


def test_what_a_session_did_is_added_up():
    books = table(1)
    books.acquire("s", "me", prompt_tokens=10)
    books.note("me", Usage("s", "replica-0", 2, 50, 7, 20, 57, 50))
    (info,) = books.sessions.infos(0, 10)
    assert (info.turns, info.prompt_tokens, info.sampled_tokens, info.cached_tokens) == (
        3, 60, 7, 20,
    )  # fmt: skip
    assert load(books).acquired == snapshot(books).acquired == 3


def test_the_sticky_rate_counts_only_turns_of_pinned_sessions():
    books = table(2)
    assert snapshot(books).sticky_rate is None
    home = books.acquire("s", "me").replica_id
    assert snapshot(books).sticky_rate is None
    books.acquire("s", "me")
    books.rotation.set_state(home, ReplicaState.UNHEALTHY)
    books.acquire("s", "me")
    assert snapshot(books).sticky_rate == 0.5


# ---------------------------------------------------------------------------- policies


class ToTheLast:
    """A policy of a user's own."""

    def choose(self, turn, pinned, candidates):
        return candidates[-1]


class ToTheFullest:
    needs = frozenset({Need.FULL_REPLICAS})

    def choose(self, turn, pinned, candidates):
        return max(candidates, key=lambda view: view.in_flight)


class ToWhatIsNotThere:
    def choose(self, turn, pinned, candidates):
        return replica_that_left


replica_that_left = table(1).rotation.get("replica-0")
replica_that_left.replica_id = "replica-9"


@pytest.mark.parametrize("policy", [ToTheLast, ToTheLast()])
def test_a_policy_is_any_class_with_one_method(policy):
    books = table(3, policy)
    assert {books.acquire(f"s{i}", "me").replica_id for i in range(4)} == {"replica-2"}
    assert snapshot(books).policy == "ToTheLast"


def test_a_replica_that_was_not_offered_is_refused():
    books = table(2, ToWhatIsNotThere())
    with pytest.raises(ConfigError, match=r"ToWhatIsNotThere.*'replica-9'.*was not offered"):
        books.acquire("s", "me")
    assert set(in_flight(books).values()) == {0}
    check(books)


def test_a_policy_that_answers_nothing_is_refused():
    class Forgetful:
        def choose(self, turn, pinned, candidates):
            min(candidates, key=lambda view: view.in_flight)

    with pytest.raises(ConfigError, match=r"Forgetful.*None.*was not offered"):
        table(2, Forgetful).acquire("s", "me")


def test_a_policy_may_wait_for_a_replica_that_is_full():
    books = table(2, ToTheFullest, capacity=1)
    full = books.acquire("s", "me")
    with pytest.raises(NoReplicaError, match=f"{full.replica_id} is full"):
        books.acquire("t", "me")
    assert sum(in_flight(books).values()) == 1
    books.release(full)
    books.acquire("t", "me")


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown policy 'fair' .allowed: .*sticky-least-loaded"):
        table(policy="fair")
