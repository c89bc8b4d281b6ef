"""The balancer is the routing table with handles, and tidies up by itself."""

from __future__ import annotations

import pytest

from workbench.cluster import balancer as balancer_module
from workbench.cluster.balancer import GlobalRequestLoadBalancer
from workbench.errors import ConfigError, NoReplicaError, ReplicaDiedError
from workbench.routing import table as table_module
from workbench.types import ReplicaState


def balancer(replicas=2, **options):
    servers = {f"replica-{i}": f"handle {i}" for i in range(replicas)}
    return GlobalRequestLoadBalancer(servers, **options)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved: ``clock[0] = seconds``."""
    now = [0.0]
    monkeypatch.setattr(balancer_module.time, "monotonic", lambda: now[0])
    return now


def test_a_lease_unpacks_as_the_replica_and_its_handle():
    replica_id, handle = balancer(1).acquire_server("s", "me")
    assert (replica_id, handle) == ("replica-0", "handle 0")


def test_the_lean_lease_carries_no_handle():
    assert balancer(1).acquire("s", "me").handle is None


def test_a_lease_is_given_back_once_whichever_way_it_came():
    books = balancer(1)
    with_handle, without = books.acquire_server("s", "me"), books.acquire("s", "me")
    assert books.get_inflight_count("replica-0") == 2
    assert books.release_server(with_handle)
    assert books.release_server(without)
    assert not books.release_server(with_handle)
    assert books.get_total_inflight() == 0


def test_sessions_opened_while_idle_are_spread():
    books = balancer(4)
    for i in range(10):
        books.acquire_server(f"s{i}")
    loads = [books.get_inflight_count(f"replica-{i}") for i in range(4)]
    assert sorted(loads) == [2, 2, 3, 3]


def test_the_policy_is_chosen_by_name():
    assert balancer(policy="least-loaded").snapshot().policy == "least-loaded"
    with pytest.raises(ConfigError, match="least-loaded"):
        balancer(policy="nonsense")


def test_replicas_come_and_go():
    books = balancer(1)
    books.add_servers({"replica-7": "handle 7"})
    assert books.get_all_servers() == ["replica-0", "replica-7"]
    books.remove_servers(["replica-0"])
    assert books.get_all_servers() == ["replica-7"]
    assert books.acquire_server("s").replica_id == "replica-7"


def test_a_replica_that_is_there_already_is_not_added_again():
    books = balancer(1)
    books.acquire("s", "me")
    with pytest.raises(ConfigError, match="replica-0"):
        books.add_servers({"replica-0": "other"})
    assert books.handle("replica-0") == "handle 0"
    assert books.get_inflight_count("replica-0") == 1


def test_the_handle_of_a_replica_that_left_is_told_as_its_death():
    """A client may hold a lease on it: for that client it died, and its call goes on elsewhere."""
    books = balancer(2)
    books.remove_servers(["replica-1"])
    with pytest.raises(ReplicaDiedError, match="replica-1"):
        books.handle("replica-1")


def test_a_reported_death_takes_the_replica_out_of_rotation_at_once():
    books = balancer(2)
    lease = books.acquire("s", "me")
    books.report_death(lease)
    books.release_server(lease)
    assert books.acquire("s", "me").replica_id != lease.replica_id
    assert books.get_status()["active_servers"] == 1


def test_a_dead_replica_comes_back_when_its_state_is_set():
    books = balancer(1)
    books.report_death(books.acquire("s", "me"))
    with pytest.raises(NoReplicaError, match="replica-0 is unhealthy"):
        books.acquire("s", "me")
    books.set_state("replica-0", ReplicaState.READY)
    assert books.acquire("s", "me").replica_id == "replica-0"


def test_a_late_report_does_not_touch_the_replica_that_came_in_its_place():
    books = balancer(1)
    lease = books.acquire("s", "me")
    books.remove_servers(["replica-0"])
    books.add_servers({"replica-0": "its successor"})
    books.report_death(lease)
    assert books.acquire("s", "me").replica_id == "replica-0"


def test_a_report_about_a_lease_that_is_over_changes_nothing():
    books = balancer(1)
    lease = books.acquire("s", "me")
    books.release_server(lease)
    books.report_death(lease)
    assert books.get_status()["active_servers"] == 1


def test_what_a_dead_client_held_can_be_given_back_for_it():
    books = balancer(2)
    for i in range(3):
        books.acquire(f"s{i}", "dead")
    books.acquire("t", "alive")
    assert books.release_owner("dead") == 3
    assert books.get_total_inflight() == 1


def test_ended_sessions_are_forgotten():
    books = balancer(1)
    books.acquire("s", "me")
    assert books.pins() == {"s": "replica-0"}
    assert books.end_session("s")
    assert not books.end_session("s")
    assert books.pins() == {}


def test_idle_sessions_are_swept_up_while_leases_are_given(clock, monkeypatch):
    monkeypatch.setattr(balancer_module, "SWEEP_EVERY", 10)
    books = balancer(1, session_idle_s=60.0)
    for i in range(5):
        books.release_server(books.acquire(f"old-{i}", "me"))
    live = books.acquire("live", "me")
    clock[0] = 61.0
    for i in range(20):
        books.release_server(books.acquire(f"new-{i % 2}", "me"))
    assert set(books.pins()) == {"live", "new-0", "new-1"}
    assert books.release_server(live)


def test_verls_summary_says_what_the_snapshot_says():
    books = balancer(2)
    books.acquire("s", "me")
    status = books.get_status()
    loads = {load.replica_id: load.in_flight for load in books.snapshot().replicas}
    assert status == {
        "servers": loads,
        "total_inflight": 1,
        "active_servers": 2,
        "registered_handles": 2,
    }


def test_looking_changes_no_count():
    books = balancer(2)
    books.acquire("s", "me")
    before = books.snapshot()
    for look in (books.snapshot, books.pins, books.get_status, books.get_total_inflight):
        look()
    books.handle("replica-0")
    assert books.snapshot() == before


def test_the_table_is_the_one_that_is_tested_on_its_own():
    assert isinstance(balancer()._table, table_module.RoutingTable)
