"""Placement is arithmetic: what fits is placed, what does not is refused with the figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cluster.placement import GIB, plan
from workbench.errors import NoRoomError


def node(*, cpu=8, gib=32, gpu=None):
    made = {"CPU": cpu, "memory": gib * GIB}
    return made if gpu is None else made | {"GPU": gpu}


def place(*nodes, on_gpu=None, replicas=1, devices=1, gib=2):
    if on_gpu is None:
        on_gpu = any(node.get("GPU") for node in nodes)
    return plan(nodes, on_gpu=on_gpu, replicas=replicas, devices=devices, memory_bytes=gib * GIB)


def test_replicas_do_not_fall_back_to_cores_where_all_gpus_are_taken():
    with pytest.raises(NoRoomError, match="needs 1 GPU, 1 CPU; free: node 0: 8 CPU"):
        place(node(), on_gpu=True)


def test_gpus_are_used_where_there_are_any():
    placed = place(node(gpu=4), replicas=2, devices=2)
    assert placed.device == "gpu"
    assert placed.bundle == {"GPU": 2, "CPU": 1}


def test_without_gpus_each_replica_gets_cores_and_memory_of_its_own():
    placed = place(node(cpu=4), replicas=2, devices=2)
    assert (placed.device, placed.threads) == ("cpu", 2)
    assert placed.bundle == {"CPU": 2, "memory": 2 * GIB}


@pytest.mark.parametrize(
    ("nodes", "devices", "room"),
    [
        ([node(cpu=3)], 1, 3),
        ([node(cpu=3)], 2, 1),
        ([node(cpu=1.5)], 1, 1),
        ([node(cpu=99, gib=5)], 1, 2),
        ([node(gpu=8)], 4, 2),
        ([node(gpu=8, cpu=1)], 4, 1),
        ([node(gpu=3), node(gpu=3)], 2, 2),
        ([node(), node(gpu=1)], 1, 1),
        ([node(gpu=1), {}], 1, 1),
    ],
)
def test_as_many_replicas_are_placed_as_fit_and_not_one_more(nodes, devices, room):
    place(*nodes, replicas=room, devices=devices)
    with pytest.raises(NoRoomError, match=f"room for {room}"):
        place(*nodes, replicas=room + 1, devices=devices)


def test_a_replica_is_not_split_over_nodes():
    with pytest.raises(NoRoomError, match="room for 0"):
        place(node(gpu=4), node(gpu=4), devices=8)


def test_the_refusal_says_what_is_needed_and_what_there_is():
    with pytest.raises(NoRoomError) as refused:
        place(node(cpu=2, gib=3), node(cpu=0, gib=1), replicas=5, devices=1)
    assert str(refused.value) == (
        "replicas: 5 asked for, room for 1. One replica needs 1 CPU, 2.0 GiB memory; "
        "free: node 0: 2 CPU, 3.0 GiB memory; node 1: 0 CPU, 1.0 GiB memory"
    )


def test_a_cluster_without_nodes_is_told_as_such():
    with pytest.raises(NoRoomError, match="no node"):
        place()


@given(
    nodes=st.lists(
        st.builds(node, cpu=st.integers(0, 9), gib=st.integers(0, 40), gpu=st.integers(0, 8)),
        max_size=4,
    ),
    devices=st.integers(1, 8),
    replicas=st.integers(1, 20),
)
def test_what_is_placed_can_be_taken_from_the_nodes(nodes, devices, replicas):
    try:
        placed = place(*nodes, replicas=replicas, devices=devices)
    except NoRoomError:
        return
    free = [dict(one) for one in nodes]
    for _ in range(replicas):
        host = next(
            one for one in free if all(one.get(k, 0) >= v for k, v in placed.bundle.items())
        )
        for name, amount in placed.bundle.items():
            host[name] -= amount
