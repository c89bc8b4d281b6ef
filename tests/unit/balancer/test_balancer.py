"""The door: one call to acquire and one to release, for anybody."""

from __future__ import annotations

import pytest

from workbench.balancer import GlobalRequestLoadBalancer
from workbench.balancer.balancer import TICK_EVERY
from workbench.client.leases import LeaseBook
from workbench.config import RoutingConfig
from workbench.errors import ConfigError, NoReplicaError, ReplicaDiedError
from workbench.metrics.samples import Activity, SessionTurns
from workbench.types import EngineFigures, EventKind, ReplicaState


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def balancer(replicas=2, **options):
    servers = {f"replica-{i}": f"handle {i}" for i in range(replicas)}
    options.setdefault("clock", Clock())
    return GlobalRequestLoadBalancer(servers, **options)


def loads(books):
    return books.get_status()["servers"]


# ---------------------------------------------------------------------------- leases


def test_a_lease_unpacks_as_the_replica_and_its_handle():
    replica_id, handle = balancer(1).acquire_server("s", "me")
    assert (replica_id, handle) == ("replica-0", "handle 0")


def test_three_requests_spread_over_three_replicas():
    books = balancer(3)
    for request in "abc":
        books.acquire_server(request)
    assert loads(books) == {"replica-0": 1, "replica-1": 1, "replica-2": 1}


def test_idle_replicas_share_what_comes_one_by_one():
    books = balancer(4)
    homes = []
    for i in range(200):
        lease = books.acquire_server(f"s{i}")
        homes.append(lease.replica_id)
        books.release_server(lease)
    assert {homes.count(f"replica-{i}") for i in range(4)} == {50}


def test_a_busy_session_does_not_attract_new_ones():
    books = balancer(2, policy="stable-hash")
    home = books.acquire_server("busy").replica_id
    for _ in range(9):
        assert books.acquire_server("busy").replica_id == home
    books = balancer(2)
    home = books.acquire_server("busy").replica_id
    books.acquire_server("busy")
    others = {books.acquire_server(f"new-{i}").replica_id for i in range(2)}
    assert others.isdisjoint({home})


def test_what_is_released_is_room_for_others():
    books = balancer(2)
    first, second = books.acquire_server("a"), books.acquire_server("b")
    assert first.replica_id != second.replica_id
    books.acquire_server("c")
    books.acquire_server("d")
    books.release_server(first)
    assert books.acquire_server("e").replica_id == first.replica_id


def test_a_session_stays_where_it_was_after_its_release():
    books = balancer(4)
    lease = books.acquire_server("s")
    books.release_server(lease)
    for i in range(10):
        books.release_server(books.acquire_server(f"t{i}"))
    assert books.acquire_server("s").replica_id == lease.replica_id


def test_a_lease_is_given_back_once():
    books = balancer(1)
    lease = books.acquire_server("s", "me")
    books.acquire_server("t", "me")
    assert books.release_server(lease)
    assert not books.release_server(lease)
    assert books.get_total_inflight() == 1


def test_a_lease_of_a_former_life_changes_nothing():
    late = balancer(1, epoch=1).acquire_server("s", "me")
    books = balancer(1, epoch=2)
    books.acquire_server("s", "me")
    assert not books.release_server(late)
    assert not books.report_death(late)
    assert books.get_status()["active_servers"] == books.get_total_inflight() == 1


@pytest.mark.parametrize("tokens", [-1, 1.5, "7", None, True])
def test_prompt_tokens_are_a_count(tokens):
    books = balancer(1)
    with pytest.raises(ConfigError, match=r"prompt_tokens.*a whole number from 0"):
        books.acquire_server("s", prompt_tokens=tokens)
    assert books.get_total_inflight() == 0


def test_a_release_at_the_door_serves_who_waits():
    books = balancer(1, rules=RoutingConfig(capacity=1))
    lease = books.acquire_server("s")
    client = LeaseBook("me")
    wanted = client.want("t")
    woken = []
    client.apply(books.exchange(client.report()))
    assert books.snapshot().queued == 1
    books.on_change = lambda: woken.append(books.has_news("me"))
    books.release_server(lease)
    assert woken == [True]
    assert [lease_id for lease_id, _ in client.apply(books.news("me", 0))] == [wanted]


# ---------------------------------------------------------------------------- replicas


def test_replicas_come_and_go():
    books = balancer(1)
    books.add_servers({"replica-7": "handle 7"})
    assert books.get_all_servers() == ["replica-0", "replica-7"]
    books.remove_servers(["replica-0"])
    assert books.get_all_servers() == ["replica-7"]
    assert books.acquire_server("s").handle == "handle 7"


def test_a_session_of_a_removed_replica_chooses_anew():
    books = balancer(2)
    lease = books.acquire_server("s")
    books.remove_servers([lease.replica_id])
    assert books.acquire_server("s").replica_id != lease.replica_id
    books.release_server(lease)
    assert books.get_total_inflight() == 1


def test_a_replica_that_was_added_again_starts_at_zero():
    books = balancer(1)
    late = books.acquire_server("s", "me")
    books.remove_servers(["replica-0"])
    books.add_servers({"replica-0": "its successor"})
    assert loads(books) == {"replica-0": 0}
    assert books.acquire_server("s", "me").handle == "its successor"
    books.release_server(late)
    assert loads(books) == {"replica-0": 1}


def test_replicas_are_added_all_or_none():
    books = balancer(1)
    books.acquire_server("s", "me")
    with pytest.raises(ConfigError, match="'replica-0' is in the table already"):
        books.add_servers({"replica-1": "handle 1", "replica-0": "other"})
    assert books.get_all_servers() == ["replica-0"]
    assert books.handle("replica-0") == "handle 0"
    assert loads(books) == {"replica-0": 1}


@pytest.mark.parametrize("leaving", [["replica-0", "replica-9"], ["replica-9"]])
def test_replicas_are_removed_all_or_none(leaving):
    books = balancer(2)
    with pytest.raises(ConfigError, match=r"unknown 'replica-9' .allowed: replica-0, replica-1"):
        books.remove_servers(leaving)
    assert books.get_all_servers() == ["replica-0", "replica-1"]


def test_a_replica_that_is_named_twice_is_removed_once():
    books = balancer(2)
    books.remove_servers(["replica-0", "replica-0"])
    assert books.get_all_servers() == ["replica-1"]


def test_without_any_replica_there_is_an_error_that_says_so():
    books = balancer(1)
    books.remove_servers(["replica-0"])
    with pytest.raises(NoReplicaError, match="the pool is empty"):
        books.acquire_server("s")
    assert books.get_status() == {
        "servers": {},
        "total_inflight": 0,
        "active_servers": 0,
        "registered_handles": 0,
    }


def test_the_count_of_an_unknown_replica_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown 'nonsense' .allowed: replica-0, replica-1"):
        balancer(2).get_inflight_count("nonsense")


def test_the_handle_of_a_replica_that_left_is_told_as_its_death():
    """A client may hold a lease on it: for that client it died, and its call goes on elsewhere."""
    books = balancer(2)
    books.remove_servers(["replica-1"])
    with pytest.raises(ReplicaDiedError, match="replica-1"):
        books.handle("replica-1")


def test_a_reported_death_takes_the_replica_out_of_rotation_at_once():
    books = balancer(2)
    lease = books.acquire_server("s", "me")
    assert books.report_death(lease)
    assert not books.release_server(lease)
    assert books.acquire_server("s", "me").replica_id != lease.replica_id
    assert books.get_status()["active_servers"] == 1


def test_a_report_about_a_lease_that_is_over_changes_nothing():
    books = balancer(1)
    lease = books.acquire_server("s", "me")
    books.release_server(lease)
    assert not books.report_death(lease)
    assert books.get_status()["active_servers"] == 1


def test_a_late_report_does_not_touch_the_replica_that_came_in_its_place():
    books = balancer(1)
    lease = books.acquire_server("s", "me")
    books.remove_servers(["replica-0"])
    books.add_servers({"replica-0": "its successor"})
    books.report_death(lease)
    assert books.acquire_server("s", "me").replica_id == "replica-0"


def test_a_draining_replica_finishes_what_it_has():
    books = balancer(2)
    leases = [books.acquire_server(f"s{i}", "me") for i in range(4)]
    books.set_state("replica-0", ReplicaState.DRAINING)
    assert {books.acquire_server(f"s{i}", "me").replica_id for i in range(4)} == {"replica-1"}
    cursor = books.events().cursor
    for lease in leases:
        assert books.release_server(lease)
    drained = [e for e in books.events(cursor).items if e.kind is EventKind.DRAINED]
    assert [event.replica_id for event in drained] == ["replica-0"]
    assert loads(books) == {"replica-0": 0, "replica-1": 4}


# ---------------------------------------------------------------------------- owners, sessions


def test_what_a_dead_client_held_can_be_given_back_for_it():
    books = balancer(2)
    for i in range(3):
        books.acquire_server(f"s{i}", "dead")
    books.acquire_server("t", "alive")
    assert books.release_owner("dead") == 3
    assert books.get_total_inflight() == 1


def test_an_owner_that_stops_giving_signs_of_life_loses_its_leases():
    clock = Clock()
    books = balancer(1, clock=clock, rules=RoutingConfig(owner_timeout_s=10.0))
    books.acquire_server("s", "gateway")
    books.acquire_server("t", "script")
    books.heartbeat("gateway")
    for clock.now_s in (9.0, 18.0):
        books.tick()
        assert books.get_total_inflight() == 2
        books.heartbeat("gateway")
    clock.now_s = 28.5
    books.tick()
    assert books.get_total_inflight() == 1


def test_a_later_life_that_is_told_of_its_replicas_last_learns_what_clients_hold():
    client = LeaseBook("me")
    client.want("s")
    books = balancer(2)
    client.apply(books.exchange(client.report()))
    books = balancer(0, epoch=2, recovering=True)
    for _ in range(2):
        client.apply(books.exchange(client.report()))
    assert books.get_total_inflight() == 0
    books.add_servers({"replica-0": "handle 0", "replica-1": "handle 1"})
    assert books.has_news("me")
    client.apply(books.news("me", client.cursor))
    client.apply(books.exchange(client.report()))
    assert books.get_total_inflight() == 1


def test_sessions_are_listed_in_pages_and_ended():
    books = balancer(2)
    for i in range(5):
        books.acquire_server(f"s{i}", prompt_tokens=i)
    assert [info.session_id for info in books.sessions(1, 2)] == ["s1", "s2"]
    assert books.session("s4").prompt_tokens == 4
    assert books.session("unknown") is None
    assert books.pins()["s0"] in books.get_all_servers()
    assert books.end_session("s0")
    assert not books.end_session("s0")
    assert "s0" not in books.pins()
    assert books.get_total_inflight() == 5


def test_time_passes_at_a_door_that_nobody_else_ticks():
    clock = Clock()
    books = balancer(1, clock=clock, rules=RoutingConfig(session_idle_s=60.0))
    for i in range(5):
        books.release_server(books.acquire_server(f"old-{i}"))
    live = books.acquire_server("live")
    for clock.now_s in (61.0, 130.0, 200.0):
        for i in range(TICK_EVERY):
            books.release_server(books.acquire_server(f"new-{i % 2}"))
    assert set(books.pins()) == {"live", "new-0", "new-1"}
    assert books.release_server(live)


# ---------------------------------------------------------------------------- views


def test_the_policy_is_chosen_by_name():
    assert balancer(policy="least-loaded").snapshot().policy == "least-loaded"
    with pytest.raises(ConfigError, match="least-loaded"):
        balancer(policy="nonsense")


def test_verls_summary_says_what_the_snapshot_says():
    books = balancer(2)
    books.acquire_server("s", "me")
    status = books.get_status()
    assert status == {
        "servers": {load.replica_id: load.in_flight for load in books.snapshot().replicas},
        "total_inflight": 1,
        "active_servers": 2,
        "registered_handles": 2,
    }


def test_looking_changes_no_count():
    books = balancer(2)
    books.acquire_server("s", "me", prompt_tokens=5)
    before = books.snapshot(), books.events()
    for look in (
        books.snapshot,
        books.pins,
        books.sessions,
        books.events,
        books.sample,
        books.get_status,
        books.get_total_inflight,
        books.probes_due,
        books.check,
    ):
        look()
    books.handle("replica-0")
    books.set_engine("replica-0", EngineFigures(running=7, waiting=9))
    books.probed("replica-0")
    books.probed("replica-1", "no answer")
    assert (books.snapshot(), books.events()) == before


def test_events_are_read_from_where_the_last_read_ended():
    books = balancer(1, rules=RoutingConfig(events=4))
    cursor = books.events().cursor
    leases = [books.acquire_server(f"s{i}") for i in range(2)]
    page = books.events(cursor)
    assert [event.session_id for event in page.items] == ["s0", "s1"]
    assert (page.cursor, page.lost) == (cursor + 2, 0)
    for lease in leases * 3:
        books.release_server(lease)
        books.acquire_server("t")
    later = books.events(page.cursor)
    assert len(later.items) == 4
    assert later.lost == later.items[0].number - page.cursor - 1 > 0


def test_events_are_told_in_wall_clock_time():
    clock, wall = Clock(), Clock()
    clock.now_s, wall.now_s = 5.0, 1_000_000.0
    books = balancer(1, clock=clock, wall_clock=wall)
    clock.now_s, wall.now_s = 6.0, 1_000_001.0
    books.tick()
    books.acquire_server("s")
    times = [(event.time_s, event.unix_s) for event in books.events().items]
    assert times == [(5.0, 1_000_000.0), (6.0, 1_000_001.0)]
    clock.now_s, wall.now_s = 7.0, 1_030_000.0  # the machine slept
    books.tick()
    books.acquire_server("s")
    assert books.events().items[-1].unix_s == 1_030_000.0


def test_a_sample_is_the_snapshot_and_what_happened_since_the_last_one():
    books = balancer(2)
    home = books.acquire_server("s").replica_id
    books.move_session("s", {"replica-0": "replica-1", "replica-1": "replica-0"}[home])
    snapshot, told = books.sample()
    assert snapshot == books.snapshot()
    assert told == books.activity()
    assert told.hot == (SessionTurns("s", home, 1),)
    assert [move.reason for move in told.moves] == ["asked"]
    assert books.sample(told.cursor)[1] == Activity(cursor=told.cursor)
    assert books.activity(top=0).others == ((home, 1),)


@pytest.mark.parametrize("wrong", [{"cursor": -1}, {"top": -1}, {"top": 1.5}])
def test_an_activity_is_asked_for_with_counts(wrong):
    with pytest.raises(ConfigError, match=rf"{next(iter(wrong))}.*a whole number from 0"):
        balancer().activity(**wrong)
