"""Which replicas get work: life, drains, failures, and the way back."""

from __future__ import annotations

import pytest

from tests.unit.routing.books import happened, in_flight, kinds, load, table
from workbench.errors import ConfigError, NoReplicaError
from workbench.routing.messages import Outcome
from workbench.routing.views import check, snapshot
from workbench.types import EventKind, ReplicaState

# ---------------------------------------------------------------------------- states


@pytest.mark.parametrize("state", sorted(set(ReplicaState) - {ReplicaState.READY}))
def test_only_ready_replicas_get_work(state):
    books = table(2)
    books.rotation.set_state("replica-0", state)
    assert {books.acquire(f"s{i}", "me").replica_id for i in range(10)} == {"replica-1"}


def test_without_a_ready_replica_the_error_names_the_reason_of_each():
    books = table(3)
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    books.rotation.set_state("replica-1", ReplicaState.PAUSED)
    books.rotation.fail(books.rotation.get("replica-2"), Outcome.DIED, "its process ended with -9")
    with pytest.raises(NoReplicaError) as refused:
        books.acquire("s", "me")
    for reason in (
        "replica-0 is draining",
        "replica-1 is paused",
        "replica-2 is unhealthy (its process ended with -9)",
    ):
        assert reason in str(refused.value)
    assert snapshot(books).sessions == 0


def test_an_empty_pool_says_so():
    with pytest.raises(NoReplicaError, match="the pool is empty"):
        table(0).acquire("s", "me")


def test_an_unknown_replica_is_refused_with_the_known_ones():
    books = table()
    for ask in (books.rotation.remove, books.rotation.get):
        with pytest.raises(ConfigError, match=r"'replica-9' .allowed: replica-0, replica-1"):
            ask("replica-9")


def test_a_session_moves_once_while_its_replica_is_down_and_stays_there():
    books = table(2)
    home = books.acquire("s", "me").replica_id
    books.rotation.set_state(home, ReplicaState.UNHEALTHY)
    refuge = books.acquire("s", "me").replica_id
    assert refuge != home
    books.rotation.set_state(home, ReplicaState.READY)
    assert books.acquire("s", "me").replica_id == refuge
    assert snapshot(books).moves == 1


def test_a_session_without_a_turn_meanwhile_does_not_notice_a_flap():
    books = table(4)
    lease = books.acquire("s", "me")
    books.release(lease)
    books.rotation.set_state(lease.replica_id, ReplicaState.PAUSED)
    books.rotation.set_state(lease.replica_id, ReplicaState.READY)
    assert books.acquire("s", "me").replica_id == lease.replica_id
    assert snapshot(books).moves == 0


def test_nobody_can_say_that_an_unhealthy_replica_is_well_but_it_is_asked_at_once():
    books = table(2)
    failed(books, Outcome.DIED)
    assert books.rotation.probes_due() == []
    (ill,) = [r for r, e in books.replicas.items() if e.state is ReplicaState.UNHEALTHY]
    books.rotation.set_state(ill, ReplicaState.READY)
    assert load(books, ill).state is ReplicaState.UNHEALTHY
    assert books.rotation.probes_due() == [ill]


def test_a_state_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="state: 'drain'"):
        table(1).rotation.set_state("replica-0", "drain")


# ---------------------------------------------------------------------------- draining


def test_a_draining_replica_takes_nothing_new_and_finishes_what_it_has():
    books = table(2)
    leases = [books.acquire(f"s{i}", "me") for i in range(4)]
    mine = [lease for lease in leases if lease.replica_id == "replica-0"]
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    assert {books.acquire(f"s{i}", "me").replica_id for i in range(4)} == {"replica-1"}
    assert in_flight(books)["replica-0"] == len(mine) == 2
    assert books.release(mine[0])
    assert happened(books, EventKind.DRAINED) == []
    assert books.release(mine[1])
    assert happened(books, EventKind.DRAINED) == [("", "replica-0", "")]
    assert {event[1] for event in happened(books, EventKind.MOVED)} == {"replica-1"}


def test_a_replica_without_work_is_drained_at_once():
    books = table(2)
    books.rotation.set_state("replica-0", ReplicaState.DRAINING)
    assert kinds(books)[-2:] == [EventKind.REPLICA_DOWN, EventKind.DRAINED]


@pytest.mark.parametrize("state", [ReplicaState.DRAINING, ReplicaState.PAUSED])
def test_clients_have_to_ask_again_when_a_replica_stops_taking_work(state):
    books = table(2)
    before = books.journal.revocations.last
    books.rotation.set_state("replica-0", state)
    (revoked,) = books.journal.revocations.read(before).items
    assert (revoked.replica_id, revoked.session_id) == ("replica-0", "")


# ---------------------------------------------------------------------------- failures


def failed(books, outcome=Outcome.FAILED):
    """A turn begins and fails; the replica that it was on."""
    lease = books.acquire("s", "me")
    books.release(lease, outcome)
    return lease.replica_id


def revive(books, replica_id="replica-0"):
    """Time passes until a probe is due, and it succeeds."""
    books.journal.now_s = books.rotation.get(replica_id).retry_at_s
    assert replica_id in books.rotation.probes_due()
    books.rotation.probed(replica_id)


def test_failures_in_a_row_take_a_replica_out():
    books = table(1, max_failures=3)
    for outcome in (Outcome.FAILED, Outcome.FAILED, Outcome.OK, Outcome.FAILED, Outcome.FAILED):
        failed(books, outcome)
        assert load(books).state is ReplicaState.READY
    failed(books)
    assert load(books).state is ReplicaState.UNHEALTHY
    assert (load(books).failures, snapshot(books).failures) == (5, 5)
    assert happened(books, EventKind.REPLICA_DOWN) == [("", "replica-0", "")]
    with pytest.raises(NoReplicaError, match=r"replica-0 is unhealthy \(requests failed on it\)"):
        books.acquire("s", "me")


def test_a_death_takes_a_replica_out_at_once():
    books = table(2)
    dead = failed(books, Outcome.DIED)
    assert load(books, dead).state is ReplicaState.UNHEALTHY
    assert load(books, dead).reason == "its engine died"
    assert {books.acquire(f"t{i}", "me").replica_id for i in range(10)}.isdisjoint({dead})


def test_what_ends_well_after_a_death_does_not_hide_it():
    """Calls that were cancelled when the engine died come back as nothing against it."""
    books = table(1)
    dying, cancelled = books.acquire("s", "me"), books.acquire("t", "me")
    books.release(dying, Outcome.DIED)
    back_off_s = books.rotation.get("replica-0").retry_at_s
    books.release(cancelled)
    assert load(books).reason == "its engine died"
    books.rotation.probed("replica-0", "it does not answer")
    assert books.rotation.get("replica-0").retry_at_s > back_off_s


def test_one_dead_replica_of_four_costs_each_session_at_most_one_call():
    books = table(4)
    homes = {f"s{i}": books.acquire(f"s{i}", "me") for i in range(40)}
    for lease in homes.values():
        books.release(lease)
    lost = dict.fromkeys(homes, 0)
    for session in list(homes) * 3:
        lease = books.acquire(session, "me")
        dies = lease.replica_id == "replica-2"
        lost[session] += dies
        books.release(lease, Outcome.DIED if dies else Outcome.OK)
    assert sum(lost.values()) == 1


def test_a_late_failure_does_not_touch_the_replica_that_came_in_its_place():
    books = table(1)
    late = books.acquire("s", "me")
    books.rotation.remove("replica-0")
    books.rotation.add("replica-0")
    books.release(late, Outcome.DIED)
    assert (load(books).state, load(books).failures) == (ReplicaState.READY, 0)


# ---------------------------------------------------------------------------- the way back


def test_it_comes_back_by_one_request_at_a_time_until_one_succeeds():
    books = table(1)
    failed(books, Outcome.DIED)
    revive(books)
    trial = books.acquire("s", "me")
    with pytest.raises(NoReplicaError, match="replica-0 is on trial after a failure"):
        books.acquire("t", "me")
    books.release(trial)
    assert [books.acquire(f"t{i}", "me").replica_id for i in range(3)] == ["replica-0"] * 3
    assert load(books).reason == ""
    check(books)


def test_a_failing_trial_takes_it_out_for_twice_as_long():
    books = table(1, probe_s=1.0)
    failed(books, Outcome.DIED)
    waits = []
    for _ in range(7):
        waits.append(books.rotation.get("replica-0").retry_at_s - books.journal.now_s)
        revive(books)
        failed(books)
        assert load(books).state is ReplicaState.UNHEALTHY
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_failing_probe_is_repeated_later_and_says_why():
    books = table(1, probe_s=1.0)
    failed(books, Outcome.DIED)
    assert books.rotation.probes_due() == []
    books.journal.now_s = 1.0
    assert books.rotation.probes_due() == ["replica-0"]
    books.rotation.probed("replica-0", "no answer within 2 s")
    assert books.rotation.probes_due() == []
    assert load(books).reason == "no answer within 2 s"
    books.journal.now_s = 2.9
    assert books.rotation.probes_due() == []
    books.journal.now_s = 3.0
    assert books.rotation.probes_due() == ["replica-0"]


def test_after_it_has_proved_itself_the_back_off_starts_over():
    books = table(1, probe_s=1.0)
    failed(books, Outcome.DIED)
    revive(books)
    failed(books)
    revive(books)
    failed(books, Outcome.OK)
    failed(books, Outcome.DIED)
    assert books.rotation.get("replica-0").retry_at_s - books.journal.now_s == 1.0


def test_a_replica_that_was_declared_unhealthy_has_to_prove_itself_too():
    books = table(1)
    books.rotation.set_state("replica-0", ReplicaState.UNHEALTHY)
    assert books.rotation.probes_due() == [], "not before the usual pause"
    revive(books)
    books.release(books.acquire("s", "me"))
    assert {books.acquire(f"t{i}", "me").replica_id for i in range(3)} == {"replica-0"}


def test_a_client_that_vanishes_proves_nothing():
    books = table(1)
    failed(books, Outcome.DIED)
    revive(books)
    books.acquire("s", "gone")
    assert books.release_owner("gone") == 1
    books.acquire("s", "me")
    with pytest.raises(NoReplicaError, match="on trial"):
        books.acquire("t", "me")


def test_who_says_that_it_is_ready_ends_the_trial():
    books = table(1)
    failed(books, Outcome.DIED)
    revive(books)
    books.rotation.set_state("replica-0", ReplicaState.PAUSED)
    books.rotation.set_state("replica-0", ReplicaState.READY)
    assert {books.acquire(f"t{i}", "me").replica_id for i in range(3)} == {"replica-0"}
    assert books.rotation.probes_due() == []


def test_probing_what_is_well_changes_nothing():
    books = table(2)
    books.acquire("s", "me")
    before = snapshot(books)
    for problem in ("", "no answer"):
        books.rotation.probed("replica-0", problem)
        books.rotation.probed("replica-9", problem)
    assert snapshot(books) == before
