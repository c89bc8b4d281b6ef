"""As many rollouts in flight as the pool can take, by what its engines say."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.rollout.pace import Gate, Pace, PoolLoad
from workbench.types import EngineFigures, ReplicaState


def test_it_begins_with_what_the_batches_hold():
    assert Pace(64).limit == 64


def test_a_full_cache_lets_fewer_in_and_a_roomy_one_more_again():
    pace = Pace(64)
    assert pace.look(PoolLoad(64, kv_cache_usage=0.95), running=40) == 34
    assert pace.look(PoolLoad(64, kv_cache_usage=0.8), running=34) == 34, "neither full nor roomy"
    assert pace.look(PoolLoad(64, kv_cache_usage=0.3), running=34) == 38
    for _ in range(20):
        pace.look(PoolLoad(64, kv_cache_usage=0.3), running=pace.limit)
    assert pace.limit == 64


def test_a_limit_that_is_not_used_up_does_not_grow():
    pace = Pace(64)
    pace.look(PoolLoad(64, kv_cache_usage=0.95), running=20)
    assert pace.look(PoolLoad(64), running=5) == 17


def pushed(capacity=64, **by_replica):
    return PoolLoad(capacity, num_preempted=by_replica)


def test_requests_that_were_pushed_out_since_the_last_look_let_fewer_in():
    pace = Pace(64)
    assert pace.look(pushed(a=7), running=60) == 64, "nobody knows since when"
    assert pace.look(pushed(a=9), running=60) == 51
    assert pace.look(pushed(a=9), running=50) == 51


def test_a_replica_that_is_back_with_its_old_count_brakes_nobody():
    pace = Pace(64)
    for load in (pushed(a=7, b=9), pushed(32, a=7), pushed(a=7, b=9)):
        pace.look(load, running=64)
    assert pace.look(pushed(a=7, b=9), running=10) >= 32


def test_what_was_learned_stays_when_a_replica_goes_and_comes_back():
    pace = Pace(64)
    pace.look(PoolLoad(64, kv_cache_usage=0.95), running=40)
    for capacity in (32, 64):
        pace.look(PoolLoad(capacity, kv_cache_usage=0.8), running=32)
    assert pace.limit <= 34


def test_replicas_that_come_are_used_at_once_and_those_that_go_are_missed():
    pace = Pace(16)
    assert pace.look(PoolLoad(48), running=16) == 48
    assert pace.look(PoolLoad(16), running=48) == 16
    assert pace.look(PoolLoad(0), running=16) == 16, "what is sent now waits for one"
    assert pace.look(PoolLoad(16), running=16) == 16


preempted = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))


@given(
    st.integers(1, 500),
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1), preempted, st.integers(0, 999))),
)
def test_whatever_is_seen_the_limit_lets_somebody_in_and_no_more_than_fit(capacity, looks):
    pace = Pace(capacity)
    for seen, usage, preempted, running in looks:
        limit = pace.look(PoolLoad(seen, usage, preempted), running)
        assert 1 <= limit <= max(1, seen) or not seen


def replica(replica_id, state, engine):
    return SimpleNamespace(
        status=SimpleNamespace(state=state, replica_id=replica_id), engine=engine
    )


def test_a_pools_load_is_that_of_the_replicas_that_serve():
    replicas = [
        replica("a", ReplicaState.READY, EngineFigures(kv_cache_usage=0.4, num_preempted=2)),
        replica("b", ReplicaState.READY, EngineFigures(kv_cache_usage=0.6, num_preempted=1)),
        replica("c", ReplicaState.READY, None),  # it serves, and has not reported yet
        replica("d", ReplicaState.PAUSED, EngineFigures(kv_cache_usage=0.99, num_preempted=50)),
    ]
    assert PoolLoad.of(replicas, 16) == PoolLoad(64, 0.99, {"a": 2, "b": 1, "d": 50})
    assert PoolLoad.of([], 16) == PoolLoad(0)


# -- the gate ----------------------------------------------------------------------------------


async def visit(gate, log, name, leave):
    async with gate.pass_through():
        log.append(name)
        await leave.wait()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_are_inside_and_the_next_come_in_the_order_of_asking():
    gate, log, leave = Gate(2), [], [asyncio.Event() for _ in range(5)]
    visits = [asyncio.ensure_future(visit(gate, log, i, leave[i])) for i in range(5)]
    await settle()
    assert (log, gate.inside) == ([0, 1], 2)
    leave[1].set()
    await settle()
    assert (log, gate.inside) == ([0, 1, 2], 2)
    gate.set_limit(1)  # whoever is inside stays
    leave[0].set()
    await settle()
    assert (log, gate.inside) == ([0, 1, 2], 1)
    gate.set_limit(9)
    await settle()
    assert (log, gate.inside) == ([0, 1, 2, 3, 4], 3)
    for event in leave:
        event.set()
    await asyncio.gather(*visits)
    assert gate.inside == 0


@pytest.mark.parametrize("is_inside", [True, False])
async def test_whoever_gives_up_frees_its_place(is_inside):
    gate, log, leave = Gate(1), [], asyncio.Event()
    first = asyncio.ensure_future(visit(gate, log, "first", leave))
    await settle()
    second = asyncio.ensure_future(visit(gate, log, "second", leave))
    third = asyncio.ensure_future(visit(gate, log, "third", leave))
    await settle()
    (first if is_inside else second).cancel()
    leave.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert log == (["first", "second", "third"] if is_inside else ["first", "third"])
    assert gate.inside == 0


@pytest.mark.parametrize("steps", range(4))
async def test_a_place_that_was_given_to_somebody_just_giving_up_is_not_lost(steps):
    gate, leave = Gate(1), asyncio.Event()
    first = asyncio.ensure_future(visit(gate, [], "first", leave))
    await settle()
    second = asyncio.ensure_future(visit(gate, [], "second", leave))
    await settle()
    leave.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert gate.inside == 0
    async with asyncio.timeout(5), gate.pass_through():
        pass
