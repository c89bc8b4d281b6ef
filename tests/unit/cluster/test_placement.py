"""Placement is arithmetic: what fits is placed, what does not is refused with the figures."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cluster.placement import GIB, Node, plan
from workbench.errors import ConfigError, NoRoomError


def node(name="a", *, cpu=8, gib=32, gpu=None, of=None):
    """One with the given amounts free, and in all what ``of`` has, or the same."""
    free = {"CPU": cpu, "memory": gib * GIB}
    free = free if gpu is None else free | {"GPU": gpu}
    return Node(name, f"host-{name}", free, of.total if of else free)


def place(*nodes, on_gpu=None, devices=1, gib=2, **wanted):
    if on_gpu is None:
        on_gpu = any(node.total.get("GPU") for node in nodes)
    wanted = {"replicas": 1, **wanted}
    return plan(nodes, on_gpu=on_gpu, devices=devices, memory_bytes=int(gib * GIB), **wanted)


def hosts(*nodes, **wanted):
    return "".join(seat.node_id for seat in place(*nodes, **wanted))


def refusal(*nodes, **wanted):
    with pytest.raises(NoRoomError) as refused:
        place(*nodes, **wanted)
    return str(refused.value)


def test_gpus_are_used_where_there_are_any():
    seats = place(node("a"), node("b", gpu=4), replicas=2, devices=2)
    assert [(s.node_id, s.device, s.bundle) for s in seats] == [
        ("b", "gpu", {"GPU": 2, "CPU": 1})
    ] * 2


def test_replicas_do_not_fall_back_to_cores_where_all_gpus_are_taken():
    assert "room for 0 (2 if nothing else ran here)" in refusal(node(gpu=0, of=node(gpu=2)))


def test_without_gpus_each_replica_gets_cores_and_memory_of_its_own():
    seats = place(node(cpu=4), replicas=2, devices=2)
    assert [(s.device, s.threads, s.bundle) for s in seats] == [
        ("cpu", 2, {"CPU": 2, "memory": 2 * GIB})
    ] * 2


def test_a_seat_travels_to_other_processes():
    (seat,) = place(node())
    assert pickle.loads(pickle.dumps(seat)) == seat


@pytest.mark.parametrize(
    ("nodes", "devices", "room"),
    [
        ([node(cpu=3)], 1, 3),
        ([node(cpu=3)], 2, 1),
        ([node(cpu=1.5)], 1, 1),
        ([node(cpu=99, gib=5)], 1, 2),
        ([node(gpu=8)], 4, 2),
        ([node(gpu=8, cpu=1)], 4, 1),
        ([node("a", gpu=3), node("b", gpu=3)], 2, 2),
        ([node("a", gpu=4), node("b", gpu=4)], 8, 0),
        ([node("a"), node("b", gpu=1)], 1, 1),
        ([node("a", gpu=1), Node("b", "host-b", {}, {})], 1, 1),
    ],
)
def test_as_many_replicas_are_placed_as_fit_and_not_one_more(nodes, devices, room):
    assert len(place(*nodes, replicas=room, devices=devices)) == room
    assert f"room for {room} " in refusal(*nodes, replicas=room + 1, devices=devices)


@pytest.mark.parametrize(
    ("free", "replicas", "packed", "spread"),
    [
        ({"a": 4, "b": 2, "c": 2}, 2, "bb", "ab"),
        ({"a": 1, "b": 2, "c": 4}, 2, "bb", "cb"),
        ({"a": 2, "b": 4, "c": 1}, 5, "bbbbc", "bacba"),
        ({"a": 3, "b": 3}, 3, "aaa", "aba"),
        ({"a": 0, "b": 3}, 2, "bb", "bb"),
    ],
)
def test_pack_fills_few_nodes_and_spread_takes_as_many_from_each(free, replicas, packed, spread):
    nodes = [node(name, cpu=cores) for name, cores in free.items()]
    assert hosts(*nodes, replicas=replicas) == packed
    assert hosts(*nodes, replicas=replicas, strategy="spread") == spread


def test_of_nodes_with_equal_room_pack_takes_the_one_that_is_used_up():
    assert hosts(node("a", cpu=5), node("b", cpu=4), devices=4) == "b"


def test_a_pool_that_grows_is_spread_as_if_it_had_been_made_at_once():
    nodes = [node("a", cpu=9), node("b", cpu=3), node("c", cpu=3)]
    assert hosts(*nodes, replicas=3, strategy="spread", taken=["a", "a", "b", "gone"]) == "cbc"


def test_replicas_that_take_nothing_fit_anywhere():
    full = [node("a", cpu=0, gib=0), node("b", cpu=0, gib=0, gpu=0)]
    seats = place(*full, replicas=5, devices=0, strategy="spread", on_gpu=True)
    assert [(s.node_id, s.bundle, s.device) for s in seats[:2]] == [
        ("a", {}, "cpu"),
        ("b", {}, "cpu"),
    ]
    assert hosts(*full, replicas=3, devices=0) == "aaa"
    assert "no node" in refusal(devices=0)


def test_oversubscribed_replicas_share_cores_but_not_memory():
    busy = node(cpu=0, gib=5)
    seats = place(busy, replicas=2, devices=4, oversubscribe=True)
    assert [(s.threads, s.bundle) for s in seats] == [(4, {"memory": 2 * GIB})] * 2
    assert "needs 2.0 GiB memory" in refusal(busy, replicas=3, devices=4, oversubscribe=True)


def test_gpus_are_not_shared():
    with pytest.raises(ConfigError, match=r"^oversubscribe: .*allowed: False") as refused:
        place(node(gpu=4), oversubscribe=True)
    assert refused.value.field == "oversubscribe"


def test_the_refusal_says_what_is_needed_and_what_there_is():
    nodes = [node("a", cpu=0, gib=1, of=node(cpu=4)), node("b", cpu=2, gib=3, of=node(gib=5))]
    assert refusal(*nodes, replicas=5) == (
        "replicas: 5 asked for, room for 1 (6 if nothing else ran here). "
        "One replica needs 1 CPU, 2.0 GiB memory on one node; free of total:\n"
        "  host-b: 2 of 8 CPU, 3.0 GiB of 5.0 GiB memory (room for 1)\n"
        "  host-a: 0 of 4 CPU, 1.0 GiB of 32.0 GiB memory (room for 0)"
    )
    assert refusal(*nodes, replicas=5, taken=["a"]).startswith("replicas: 5 more asked for,")


def test_a_replica_larger_than_every_node_can_never_fit():
    told = refusal(node("a", gpu=2, cpu=64), node("b", gpu=0, of=node(gpu=4)), devices=8)
    assert told.endswith(
        "It can never fit: a replica is larger than any node, the largest of which has 4 GPU, 8 CPU"
    )
    assert "never" not in refusal(node(gpu=0, of=node(gpu=8)), devices=8)


@pytest.mark.parametrize(
    ("nodes", "wanted", "is_named"),
    [
        ([node(cpu=2)], {"replicas": 3}, True),
        ([node(cpu=8)], {"devices": 9}, True),
        ([node(cpu=2, gib=5)], {"replicas": 3}, False),  # memory lacks too
        ([node(cpu=2, gib=5)], {"replicas": 3, "oversubscribe": True}, False),
        ([node(gpu=8, cpu=1)], {"replicas": 2}, False),
        ([], {}, False),
    ],
)
def test_sharing_cores_is_named_only_where_it_would_do(nodes, wanted, is_named):
    assert ("oversubscribe=True" in refusal(*nodes, **wanted)) == is_named


def test_the_refusal_of_a_large_cluster_is_short():
    alike = [node(f"x{i}", cpu=1, gib=1) for i in range(500)]
    mixed = [node(f"y{i}", cpu=i, gib=64) for i in range(500)]
    told = refusal(*alike, *mixed, devices=1000, gib=4).splitlines()
    assert len(told) == 8
    assert told[1] == "  host-y499: 499 of 499 CPU, 64.0 GiB of 64.0 GiB memory (room for 0)"
    assert told[5] == "  996 more nodes (room for 0 on all of them)"
    assert refusal(*alike).splitlines()[1:2] == [
        "  500 nodes, each: 1 of 1 CPU, 1.0 GiB of 1.0 GiB memory (room for 0)"
    ]


clusters = st.lists(
    st.builds(
        dict, cpu=st.integers(0, 9), gib=st.integers(0, 40), gpu=st.none() | st.integers(0, 8)
    ),
    max_size=5,
).map(lambda drawn: [node(str(i), **figures) for i, figures in enumerate(drawn)])


@given(clusters, st.integers(1, 4), st.integers(1, 20), st.sampled_from(["pack", "spread"]))
def test_what_is_placed_can_be_taken_from_the_nodes(nodes, devices, replicas, strategy):
    try:
        seats = place(*nodes, replicas=replicas, devices=devices, strategy=strategy)
    except NoRoomError:
        return
    assert len(seats) == replicas
    for host in nodes:
        here = [seat.bundle for seat in seats if seat.node_id == host.node_id]
        for name in {name for bundle in here for name in bundle}:
            assert sum(bundle[name] for bundle in here) <= host.free.get(name, 0)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(1, 12),
    st.lists(st.integers(0, 4), max_size=4),
)
def test_packed_on_the_fewest_nodes_and_spread_evenly(rooms, replicas, running):
    nodes = [node(str(i), cpu=cores, gib=99) for i, cores in enumerate(rooms)]
    if sum(rooms) < replicas:
        return
    used = len(set(hosts(*nodes, replicas=replicas)))
    largest = sorted(rooms, reverse=True)
    assert sum(largest[:used]) >= replicas > sum(largest[: used - 1])
    taken = [str(i) for i in running]
    new = Counter(hosts(*nodes, replicas=replicas, strategy="spread", taken=taken))
    counts = new + Counter(taken)
    for i, cores in enumerate(rooms):
        if new[str(i)] < cores:  # it could have held another
            assert all(counts[host] <= counts[str(i)] + 1 for host in new)
