"""The routing table keeps its books whatever order things happen in."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workbench.errors import ConfigError, NoReplicaError
from workbench.routing.policies import make_policy
from workbench.routing.table import RoutingTable
from workbench.types import Lease, ReplicaState

SESSIONS = st.sampled_from([f"session-{i}" for i in range(4)])
REPLICAS = st.sampled_from([f"replica-{i}" for i in range(4)])
OWNERS = st.sampled_from(["alice", "bob"])


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def table(replicas=2, policy="sticky-least-loaded", clock=None, epoch=0, seed=0):
    made = RoutingTable(
        make_policy(policy, random.Random(seed)), clock=clock or Clock(), epoch=epoch
    )
    for i in range(replicas):
        made.add_replica(f"replica-{i}")
    return made


def shares(books):
    return Counter(pin for pin in books.pins().values())


class Books(RuleBasedStateMachine):
    """Everything that can happen to a table, checked against a model that is a plain dict."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        policy = "sticky-least-loaded"
        self.table = table(2, policy, self.clock, epoch=5)
        self.lives = {"replica-0": 0, "replica-1": 0}
        self.births = 1
        self.session_lives: Counter[str] = Counter()
        self.held: dict[int, tuple[Lease, int, int]] = {}
        self.returned: list[Lease] = []

    def pick(self, data, leases):
        return data.draw(st.sampled_from(sorted(leases, key=lambda lease: lease.lease_id)))

    @rule(session=SESSIONS, owner=OWNERS)
    def acquire(self, session, owner):
        ready = [r for r in self.table.snapshot().replicas if r.state is ReplicaState.READY]
        pinned = self.table.pins().get(session)
        if not ready:
            with pytest.raises(NoReplicaError):
                self.table.acquire(session, owner)
            return
        lease = self.table.acquire(session, owner)
        assert lease.replica_id in {r.replica_id for r in ready}
        if pinned in {r.replica_id for r in ready}:
            assert lease.replica_id == pinned
        assert self.table.pins()[session] == lease.replica_id
        lives = self.lives[lease.replica_id], self.session_lives[session]
        self.held[lease.lease_id] = (lease, *lives)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        lease = self.pick(data, [lease for lease, _, _ in self.held.values()])
        assert self.table.release(lease)
        del self.held[lease.lease_id]
        self.returned.append(lease)

    @precondition(lambda self: self.returned)
    @rule(data=st.data())
    def release_again(self, data):
        assert not self.table.release(self.pick(data, self.returned))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), epoch=st.integers(0, 4))
    def release_from_an_older_life_of_the_balancer(self, data, epoch):
        lease = self.pick(data, [lease for lease, _, _ in self.held.values()])
        assert not self.table.release(replace(lease, epoch=epoch))

    @rule(number=st.integers(10_000, 20_000), session=SESSIONS, replica=REPLICAS)
    def release_what_never_was(self, number, session, replica):
        assert not self.table.release(Lease(number, session, replica, "mallory", 5))

    @rule(session=SESSIONS, owner=OWNERS)
    def acquire_and_cancel(self, session, owner):
        """What a client does that is cancelled while it acquires: it gives the lease back."""
        before = self.counts()
        try:
            lease = self.table.acquire(session, owner)
        except NoReplicaError:
            return
        assert self.table.release(lease)
        assert self.counts() == before

    @rule(replica=REPLICAS)
    def add(self, replica):
        if replica in self.lives:
            with pytest.raises(ConfigError):
                self.table.add_replica(replica)
            return
        self.table.add_replica(replica)
        self.lives[replica] = self.births = self.births + 1
        assert self.table.in_flight(replica) == 0

    @rule(replica=REPLICAS)
    def remove(self, replica):
        if replica not in self.lives:
            with pytest.raises(ConfigError):
                self.table.remove_replica(replica)
            return
        self.table.remove_replica(replica)
        del self.lives[replica]
        assert replica not in self.table.pins().values()

    @rule(replica=REPLICAS)
    def replace_at_once(self, replica):
        if replica in self.lives:
            self.remove(replica)
        self.add(replica)

    @rule(replica=REPLICAS, state=st.sampled_from(ReplicaState))
    def set_state(self, replica, state):
        if replica in self.lives:
            self.table.set_state(replica, state)

    @rule(session=SESSIONS)
    def end_session(self, session):
        known = session in self.table.pins()
        assert self.table.end_session(session) == known
        assert session not in self.table.pins()
        self.session_lives[session] += 1

    @rule(idle_s=st.sampled_from([0.0, 1.0, 5.0]))
    def expire(self, idle_s):
        known = self.table.pins().keys()
        live = {
            lease.session_id
            for lease, _, life in self.held.values()
            if life == self.session_lives[lease.session_id]
        }
        assert self.table.expire_sessions(idle_s) == len(known) - len(self.table.pins())
        assert live <= self.table.pins().keys()
        for session in known - self.table.pins().keys():
            self.session_lives[session] += 1

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def time_passes(self, seconds):
        self.clock.now_s += seconds

    @rule(owner=OWNERS)
    def release_owner(self, owner):
        mine = [key for key, (lease, _, _) in self.held.items() if lease.owner == owner]
        assert self.table.release_owner(owner) == len(mine)
        for key in mine:
            self.returned.append(self.held.pop(key)[0])

    def counts(self):
        return {r.replica_id: r.in_flight for r in self.table.snapshot().replicas}

    @invariant()
    def books_are_in_order(self):
        self.table.check()

    @invariant()
    def in_flight_is_what_is_held_on_this_life_of_the_replica(self):
        held = Counter(
            lease.replica_id
            for lease, life, _ in self.held.values()
            if self.lives.get(lease.replica_id) == life
        )
        assert self.counts() == {replica: held[replica] for replica in self.lives}

    def teardown(self):
        for lease, _, _ in self.held.values():
            assert self.table.release(lease)
        self.table.check()
        assert self.table.snapshot().in_flight == 0


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=50, deadline=None)
@given(
    sessions=st.integers(0, 60),
    replicas=st.integers(1, 7),
    seed=st.integers(0, 3),
)
def test_sessions_opened_while_idle_land_within_one_of_each_other(sessions, replicas, seed):
    books = table(replicas, seed=seed)
    for i in range(sessions):
        books.acquire(f"s{i}", "me")
    counts = [shares(books)[r] for r in books.replica_ids]
    assert max(counts) - min(counts) <= 1


@settings(max_examples=50, deadline=None)
@given(sessions=st.integers(0, 60), replicas=st.integers(1, 7), seed=st.integers(0, 3))
def test_sessions_released_one_by_one_land_within_one_of_each_other(sessions, replicas, seed):
    books = table(replicas, seed=seed)
    for i in range(sessions):
        books.release(books.acquire(f"s{i}", "me"))
    counts = [shares(books)[r] for r in books.replica_ids]
    assert max(counts) - min(counts) <= 1


def test_the_first_session_does_not_always_land_on_the_first_replica():
    first = {table(4, seed=seed).acquire("s", "me").replica_id for seed in range(20)}
    assert len(first) > 1


def test_a_session_comes_back_to_its_replica():
    books = table(4)
    home = books.acquire("s", "me")
    books.release(home)
    for i in range(20):
        books.acquire(f"other-{i}", "me")
    assert books.acquire("s", "me").replica_id == home.replica_id


def test_two_clients_see_the_same_pin():
    books = table(4)
    assert books.acquire("s", "alice").replica_id == books.acquire("s", "bob").replica_id


def test_a_session_moves_once_while_its_replica_is_down_and_stays_there():
    books = table(2)
    home = books.acquire("s", "me").replica_id
    books.set_state(home, ReplicaState.UNHEALTHY)
    refuge = books.acquire("s", "me").replica_id
    assert refuge != home
    books.set_state(home, ReplicaState.READY)
    assert books.acquire("s", "me").replica_id == refuge
    assert books.snapshot().moves == 1


@pytest.mark.parametrize("state", set(ReplicaState) - {ReplicaState.READY})
def test_only_ready_replicas_get_work(state):
    books = table(2)
    books.set_state("replica-0", state)
    assert {books.acquire(f"s{i}", "me").replica_id for i in range(10)} == {"replica-1"}


def test_without_a_ready_replica_the_error_names_the_state_of_each():
    books = table(2)
    books.set_state("replica-0", ReplicaState.DRAINING)
    books.set_state("replica-1", ReplicaState.UNHEALTHY)
    with pytest.raises(NoReplicaError, match=r"replica-0 is draining.*replica-1 is unhealthy"):
        books.acquire("s", "me")
    assert books.snapshot().sessions == 0


def test_a_late_release_does_not_lower_the_count_of_a_replica_that_was_added_again():
    books = table(1)
    late = books.acquire("s", "me")
    books.remove_replica("replica-0")
    books.add_replica("replica-0")
    books.acquire("t", "me")
    assert books.release(late)
    assert books.in_flight("replica-0") == 1


def test_a_release_from_an_older_epoch_changes_nothing():
    old, new = table(epoch=1), table(epoch=2)
    late = old.acquire("s", "me")
    assert new.acquire("s", "me").lease_id == late.lease_id
    assert not new.release(late)
    assert new.snapshot().in_flight == 1


def test_a_session_that_was_ended_and_came_back_is_not_charged_for_its_former_leases():
    clock = Clock()
    books = table(clock=clock)
    former = books.acquire("s", "me")
    books.end_session("s")
    books.acquire("s", "me")
    books.release(former)
    books.check()
    clock.now_s = 100.0
    assert books.expire_sessions(1.0) == 0, "it has a request in flight"


def test_idle_sessions_expire_and_live_ones_do_not():
    clock = Clock()
    books = table(clock=clock)
    books.release(books.acquire("idle", "me"))
    books.acquire("in-flight", "me")
    clock.now_s = 10.0
    books.release(books.acquire("recent", "me"))
    assert books.expire_sessions(5.0) == 1
    assert set(books.pins()) == {"in-flight", "recent"}


def test_a_session_starts_to_idle_when_its_last_lease_is_given_back():
    clock = Clock()
    books = table(clock=clock)
    lease = books.acquire("s", "me")
    clock.now_s = 10.0
    books.release(lease)
    clock.now_s = 14.0
    assert books.expire_sessions(5.0) == 0
    clock.now_s = 15.0
    assert books.expire_sessions(5.0) == 1


def test_an_owner_gets_rid_of_its_leases_and_of_no_others():
    books = table()
    for owner in ("alice", "alice", "bob"):
        books.acquire("s", owner)
    assert books.release_owner("alice") == 2
    assert books.release_owner("alice") == 0
    assert books.snapshot().in_flight == 1


def test_ending_a_session_keeps_its_open_leases_counted():
    books = table(1)
    lease = books.acquire("s", "me")
    assert books.end_session("s")
    assert not books.end_session("s")
    assert books.in_flight("replica-0") == 1
    assert books.release(lease)
    assert books.in_flight("replica-0") == 0


def test_the_sticky_rate_counts_only_turns_of_pinned_sessions():
    books = table(2)
    assert books.snapshot().sticky_rate is None
    home = books.acquire("s", "me").replica_id
    assert books.snapshot().sticky_rate is None
    books.acquire("s", "me")
    books.set_state(home, ReplicaState.UNHEALTHY)
    books.acquire("s", "me")
    assert books.snapshot().sticky_rate == 0.5


def test_the_peak_remembers_what_was_in_flight_together():
    books = table(1)
    leases = [books.acquire(f"s{i}", "me") for i in range(3)]
    for lease in leases:
        books.release(lease)
    (load,) = books.snapshot().replicas
    assert (load.in_flight, load.peak_in_flight, load.acquired) == (0, 3, 3)


def test_an_unknown_replica_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"allowed: replica-0, replica-1"):
        table().in_flight("replica-9")


def test_a_lease_unpacks_as_replica_and_handle():
    replica_id, handle = Lease(1, "s", "replica-0", "me", 0, handle="the actor")
    assert (replica_id, handle) == ("replica-0", "the actor")
