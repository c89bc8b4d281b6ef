"""A client on one loop: replicas that are replaced, clients that are closed or left alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.inprocess import (
    PROMPT,
    ManualEngine,
    answered,
    begun,
    generate,
    manual_pool,
    opened,
    simulated_pool,
    until,
    virtually,
)
from workbench.client import desk as desk_module
from workbench.engines.host import EngineHost
from workbench.errors import PoolClosedError
from workbench.local import LocalReplica
from workbench.types import FinishReason, ReplicaState


@virtually
async def test_a_replica_that_comes_under_an_old_name_is_met_anew():
    async with manual_pool(1) as pool:
        client = pool.client()
        await answered(pool, *await opened(pool, client))
        fresh = ManualEngine("replica-0")
        host = EngineHost("replica-0", fresh, flush_s=0.001)
        await host.start()
        pool.balancer.remove_servers(["replica-0"])
        pool.balancer.add_servers({"replica-0": LocalReplica(host)})
        await asyncio.sleep(0.1)  # the client has heard of it
        call = asyncio.ensure_future(generate(client))
        await until(lambda: fresh.asked)
        fresh.say(fresh.asked[0], 7, finish=FinishReason.STOP)
        assert (await call).token_ids == [7]
        assert len(pool.engines[0].asked) == 1, "the one that left gets nothing"
        assert pool.balancer.get_status()["active_servers"] == 1
        await until(lambda: pool.in_flight == 0)
        await host.close()


@virtually
async def test_a_call_outlives_a_balancer_that_dies_between_grant_and_first_contact():
    async with simulated_pool() as pool:
        client = pool.client()
        reach, asked = pool.port.replica, []

        async def dies_first(replica_id):
            if not asked:
                asked.append(replica_id)
                await pool.kill_balancer()
                asyncio.get_running_loop().call_later(1.0, pool.restart_balancer)
            return await reach(replica_id)

        pool.port.replica = dies_first
        assert len((await generate(client)).token_ids) == 8


@virtually
async def test_a_draining_replica_stays_so_when_the_balancer_starts_over():
    async with manual_pool(2) as pool:
        pool.pin("s", 0)
        client = pool.client()
        call, request = await opened(pool, client)
        pool.set_state("replica-0", ReplicaState.DRAINING)
        await pool.kill_balancer()
        pool.restart_balancer()
        await until(lambda: pool.balancer.get_inflight_count("replica-0") == 1)
        states = {r.replica_id: r.state for r in pool.balancer.snapshot().replicas}
        assert states["replica-0"] is ReplicaState.DRAINING
        await answered(pool, call, request)
        output = await answered(pool, *await opened(pool, client, "t", engine=1), engine=1)
        assert output.replica_id == "replica-1"


@virtually
async def test_an_engine_that_breaks_on_requests_counts_as_failing():
    async with manual_pool(1) as pool:
        pool.engines[0].refusals["s"] = RuntimeError("CUDA error")
        client = pool.client()
        for _ in range(3):
            with pytest.raises(RuntimeError, match="CUDA error"):
                await generate(client)
        await until(lambda: pool.balancer.snapshot().replicas[0].failures == 3)
        assert pool.balancer.snapshot().replicas[0].state is ReplicaState.UNHEALTHY


@virtually
async def test_what_a_client_did_last_is_told_when_it_is_closed():
    async with simulated_pool(report_s=5.0) as pool:
        client = pool.client()
        await generate(client)
        await generate(client)
        client.end_session("s")
        await client.aclose()
        assert pool.balancer.snapshot().acquired == 2
        assert pool.balancer.sessions() == []


@virtually
async def test_a_call_that_begins_while_the_client_closes_does_not_disturb_the_next_life():
    async with manual_pool(1) as pool:
        client = pool.client()
        old, _ = await opened(pool, client, "old")
        closing = asyncio.ensure_future(client.aclose())
        await asyncio.sleep(0)
        call, request = await opened(pool, client, "new")
        await closing
        with pytest.raises(PoolClosedError):
            await old
        await asyncio.sleep(1.0)
        assert pool.in_flight == 1, "its lease is its own"
        assert (await answered(pool, call, request)).token_ids == [5]


@virtually
async def test_a_call_that_backs_off_ends_with_its_client():
    async with simulated_pool() as pool:
        client = pool.client(backoff_s=5.0)
        call = asyncio.ensure_future(generate(client))
        await begun(client)
        pool.replicas["replica-0"].kill()
        await asyncio.sleep(0.5)
        await client.aclose()
        with pytest.raises(PoolClosedError):
            await call


@virtually
async def test_a_client_that_nobody_uses_stops_listening_and_can_be_used_again():
    async with simulated_pool(owner_timeout_s=5.0) as pool:
        client = pool.client()
        await generate(client)
        await asyncio.sleep(desk_module.IDLE_S / 2)
        assert pool.balancer.snapshot().clients == 1
        await asyncio.sleep(desk_module.IDLE_S)
        assert pool.balancer.snapshot().clients == 0
        assert not [t for t in asyncio.all_tasks() if t.get_name() == "lease-watch"]
        output = await client.generate("s", prompt_ids=PROMPT, sampling_params={"max_tokens": 3})
        assert len(output.token_ids) == 3
        assert pool.balancer.snapshot().clients == 1
