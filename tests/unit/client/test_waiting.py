"""Turns that wait: for room, for a replica at all, in which order, for how long, and why."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.inprocess import (
    Step,
    answered,
    generate,
    manual_pool,
    now,
    opened,
    pool_of,
    simulated_pool,
    until,
    virtually,
)
from workbench.balancer.host import TICK_S
from workbench.client import LLMServerClient
from workbench.errors import DeadlineError, NoReplicaError, RequestError
from workbench.types import FinishReason, ReplicaState


async def queued(pool, *calls):
    """Start calls one after the other; each is in the line before the next one comes."""
    before, tasks = pool.balancer.snapshot().queued, []
    for number, call in enumerate(calls):
        tasks.append(asyncio.ensure_future(call))
        await until(lambda number=number: pool.balancer.snapshot().queued == before + number + 1)
    return tasks


def ask(client, session, priority=0):
    return client.generate(session, prompt_ids=[1], sampling_params={}, priority=priority)


async def end_one_by_one(pool):
    """Answer what the engine has, one at a time; the sessions in the order in which they came."""
    (engine,), order = pool.engines, []

    def over():
        return pool.in_flight == pool.balancer.snapshot().queued == 0

    while not over():
        await until(lambda: engine.open or over())
        for request in [r for r in engine.asked if r.request_id in engine.open]:
            order.append(request.session_id)
            engine.say(request, 5, finish=FinishReason.STOP)
    return order


# -- capacity --------------------------------------------------------------------------------


@virtually
async def test_turns_beyond_the_capacity_wait_and_go_in_order():
    async with manual_pool(capacity=1) as pool:
        one, other = pool.client(), pool.client()
        first, _ = await opened(pool, one, "first")
        clients = [one, other, other, one, other]
        waiting = await queued(pool, *(ask(c, f"s{i}") for i, c in enumerate(clients)))
        assert await end_one_by_one(pool) == ["first", "s0", "s1", "s2", "s3", "s4"]
        await asyncio.gather(first, *waiting)
        assert pool.balancer.snapshot().replicas[0].peak_in_flight == 1


@virtually
async def test_a_lower_priority_number_goes_first():
    async with manual_pool(capacity=1) as pool:
        client = pool.client()
        first, _ = await opened(pool, client, "first")
        priorities = {"late": 5, "a": 0, "urgent": -3, "b": 0}
        waiting = await queued(pool, *(ask(client, s, p) for s, p in priorities.items()))
        assert await end_one_by_one(pool) == ["first", "urgent", "a", "b", "late"]
        await asyncio.gather(first, *waiting)


@virtually
async def test_the_capacity_holds_for_turns_of_pinned_sessions_too():
    async with simulated_pool(Step, Step, capacity=3) as pool:
        clients = [pool.client(), pool.client()]
        for _ in range(3):
            await asyncio.gather(*(generate(clients[i % 2], f"s{i % 12}") for i in range(24)))
        assert [load.peak_in_flight for load in pool.balancer.snapshot().replicas] == [3, 3]
        assert pool.balancer.snapshot().acquired == 72


@virtually
async def test_who_gives_up_waiting_leaves_the_line():
    async with manual_pool(capacity=1) as pool:
        client = pool.client()
        call, request = await opened(pool, client, "first")
        gone, stays = await queued(pool, ask(client, "gone"), ask(client, "stays"))
        gone.cancel()
        await asyncio.wait({gone})
        await until(lambda: pool.balancer.snapshot().queued == 1)
        await answered(pool, call, request)
        await end_one_by_one(pool)
        await stays
        assert [r.session_id for r in pool.engines[0].asked] == ["first", "stays"]


@virtually
async def test_a_killed_clients_turns_leave_the_line_with_its_leases():
    async with manual_pool(capacity=1, owner_timeout_s=5.0) as pool:
        doomed, other = pool.client(), pool.client()
        call, _ = await opened(pool, doomed, "first")
        waiting, stays = await queued(pool, ask(doomed, "waiting"), ask(other, "stays"))
        await doomed.aclose()
        await asyncio.wait({call, waiting})
        await until(lambda: [r.session_id for r in pool.engines[0].asked] == ["first", "stays"])
        await end_one_by_one(pool)
        await stays


# -- no replica ------------------------------------------------------------------------------


@virtually
async def test_without_a_ready_replica_turns_wait_and_then_hear_the_reason_for_each():
    async with simulated_pool(Step, Step, no_replica_s=20.0) as pool:
        client = await pool.greeted()
        pool.balancer.set_state("replica-0", ReplicaState.DRAINING)
        pool.balancer.set_state("replica-1", ReplicaState.PAUSED)
        began = now()
        with pytest.raises(NoReplicaError, match=r"replica-0 is draining, replica-1 is paused"):
            await generate(client)
        assert now() - began == pytest.approx(20.0, abs=2 * TICK_S)
        pool.balancer.set_state("replica-1", ReplicaState.READY)
        assert (await generate(client)).replica_id == "replica-1"


@virtually
async def test_a_dead_replica_is_named_with_what_is_wrong_with_it():
    async with manual_pool(no_replica_s=5.0) as pool:
        call, _ = await opened(pool, pool.client())
        pool.engines[0].die()
        with pytest.raises(NoReplicaError, match=r"replica-0 is unhealthy \(.*told to"):
            await call


@virtually
async def test_an_empty_pool_says_so():
    async with pool_of([], no_replica_s=5.0) as pool:
        with pytest.raises(NoReplicaError, match="the pool is empty"):
            await generate(pool.client())


@virtually
async def test_a_replica_that_comes_in_time_ends_the_wait():
    async with pool_of([], no_replica_s=5.0) as pool:
        (call,) = await queued(pool, generate(pool.client()))
        await asyncio.sleep(4.0)
        await pool.add(Step)
        assert (await call).replica_id == "replica-0"


@virtually
async def test_replicas_that_are_only_full_are_waited_for_however_long_it_takes():
    async with manual_pool(flush_s=0.1, capacity=1, no_replica_s=1.0) as pool:
        client = pool.client()
        call, request = await opened(pool, client, "first")
        (waiting,) = await queued(pool, ask(client, "second"))
        await asyncio.sleep(60.0)
        await answered(pool, call, request)
        await end_one_by_one(pool)
        await waiting


# -- deadlines -------------------------------------------------------------------------------


@virtually
async def test_a_deadline_that_passes_in_the_line_says_what_was_waited_for():
    async with manual_pool(flush_s=0.1, capacity=1) as pool:
        client = pool.client()
        call, request = await opened(pool, client, "first")
        began = now()
        with pytest.raises(
            DeadlineError, match=r"after 9.0 s .*replica-0 is full \(1 of 1 in flight\)"
        ):
            await generate(client, "second", deadline_s=9.0)
        assert now() - began == pytest.approx(9.0, abs=0.01)
        await until(lambda: pool.balancer.snapshot().queued == 0)
        await answered(pool, call, request)


@virtually
async def test_a_deadline_that_passes_in_the_engine_blames_no_replica():
    async with manual_pool(flush_s=0.1) as pool:
        with pytest.raises(DeadlineError) as late:
            await generate(pool.client(), deadline_s=9.0)
        assert "replica" not in str(late.value)
        await until(lambda: not pool.engines[0].open)


# -- refused before anything is asked --------------------------------------------------------


@pytest.mark.parametrize("priority", [None, True, 1.5, "high", 2**40])
async def test_a_priority_that_is_none_is_refused_by_name(priority):
    with pytest.raises(RequestError) as refused:
        await ask(LLMServerClient(balancer=None), "s", priority)
    assert refused.value.field == "priority"
    assert refused.value.allowed


@pytest.mark.parametrize(
    "settings", [{}, {"deterministic": True}, {"policy": "prefix-aware"}], ids=str
)
@pytest.mark.parametrize("prompt", [[1.5] * 40, ["a"] * 40, [None] * 40, [-1] * 40, [2**80] * 40])
async def test_a_prompt_that_is_none_is_refused_by_name(prompt, settings):
    routing = {name: value for name, value in settings.items() if name == "policy"}
    async with simulated_pool(**routing) as pool:
        client = pool.client(deterministic="deterministic" in settings)
        with pytest.raises(RequestError) as refused:
            await generate(client, prompt=prompt)
        assert refused.value.field == "prompt_ids"
        assert pool.balancer.get_status()["active_servers"] == 1


@virtually
async def test_the_priority_reaches_the_engine():
    async with manual_pool() as pool:
        call = asyncio.ensure_future(ask(pool.client(), "s", -7))
        await until(lambda: pool.engines[0].open)
        (request,) = pool.engines[0].asked
        assert request.priority == -7
        await answered(pool, call, request)
