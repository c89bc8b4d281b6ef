"""The balancer goes away, for a moment or for good: calls do not notice, or hear why."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.unit.inprocess import (
    GatedBalancer,
    Step,
    answered,
    assert_aligned,
    generate,
    manual_pool,
    now,
    opened,
    simulated_pool,
    undisturbed,
    until,
    virtually,
)
from workbench.errors import BalancerLostError, PoolClosedError
from workbench.types import FinishReason

# -- a restart -------------------------------------------------------------------------------


@virtually
async def test_after_a_restart_the_balancer_knows_what_is_open_and_where_sessions_are():
    async with manual_pool(2, flush_s=0.05) as pool:
        clients = [pool.client(), pool.client()]
        pool.pin("open", 0)
        pool.pin("idle", 1)
        await answered(pool, *await opened(pool, clients[1], "idle", engine=1), engine=1)
        call, request = await opened(pool, clients[0], "open")
        await pool.kill_balancer()
        pool.restart_balancer()
        await until(lambda: pool.in_flight == 1)
        await until(lambda: pool.balancer.pins() == {"open": "replica-0", "idle": "replica-1"})
        assert (pool.balancer.snapshot().epoch, pool.balancer.snapshot().clients) == (2, 2)
        await answered(pool, call, request)
        await until(lambda: pool.in_flight == 0)
        again = await answered(pool, *await opened(pool, clients[0], "idle", engine=1), engine=1)
        assert again.replica_id == "replica-1"


@virtually
async def test_while_the_balancer_is_away_calls_end_and_turns_of_pinned_sessions_begin():
    async with manual_pool(flush_s=0.05) as pool:
        client = pool.client()
        call, request = await opened(pool, client)
        await pool.kill_balancer()
        assert (await answered(pool, call, request, 7)).token_ids == [7]
        call, request = await opened(pool, client)
        asking = asyncio.ensure_future(generate(client, "new"))
        await asyncio.sleep(5.0)
        assert len(pool.engines[0].asked) == 2
        assert (await answered(pool, call, request, 8)).token_ids == [8]
        pool.restart_balancer()
        await until(lambda: len(pool.engines[0].asked) == 3)
        await answered(pool, asking, pool.engines[0].asked[-1])


@virtually
async def test_after_a_restart_new_sessions_wait_until_clients_had_time_to_say_where_theirs_are():
    async with manual_pool(2, flush_s=0.05, recovery_s=3.0) as pool:
        slow_port = GatedBalancer(pool)
        quick, slow = pool.client(), pool.client_by(slow_port)
        pool.pin("s", 1)
        await answered(pool, *await opened(pool, slow, engine=1), engine=1)
        await answered(pool, *await opened(pool, quick, engine=1), engine=1)
        await pool.kill_balancer()
        slow_port.open_gate.clear()
        pool.restart_balancer()
        restarted = now()
        shared = asyncio.ensure_future(generate(quick, "t"))
        await asyncio.sleep(2.0)
        assert pool.balancer.snapshot().queued == 1
        slow_port.open_gate.set()
        await until(lambda: any(engine.open for engine in pool.engines))
        assert now() - restarted >= 3.0
        for engine in pool.engines:
            for request in engine.asked:
                if request.session_id == "t":
                    engine.say(request, 5, finish=FinishReason.STOP)
        await shared


@pytest.mark.parametrize("steps", [0, 1, 3, 10, 30, 100])
@virtually
async def test_whenever_the_balancer_dies_all_calls_complete(steps):
    args = replace(Step, step_s=0.001)
    async with simulated_pool(args, args, report_s=0.01) as pool:
        client, other = pool.client(), pool.client()
        calls = [
            asyncio.ensure_future(
                generate([client, other][i % 2], f"s{i % 8}", prompt=[i + 1], max_tokens=10)
            )
            for i in range(24)
        ]
        for _ in range(3):
            for _ in range(steps):
                await asyncio.sleep(0)
            await pool.kill_balancer()
            await asyncio.sleep(0.002)
            pool.restart_balancer()
        outputs = await asyncio.gather(*calls)
        await asyncio.sleep(2.0)
        assert pool.in_flight == 0
        assert set(pool.balancer.pins()) == {f"s{i}" for i in range(8)}
    for output in outputs:
        assert len(output.token_ids) == 10
        assert_aligned(output)
    whole = await undisturbed([1], max_tokens=10)
    assert outputs[0].token_ids == whole.token_ids


@virtually
async def test_an_exchange_that_hangs_when_the_balancer_dies_is_made_again():
    async with simulated_pool() as pool:
        client = await pool.greeted()
        pool.port.open_gate.clear()
        call = asyncio.ensure_future(generate(client, "new"))
        await until(lambda: pool.port.asked == 2)
        pool.port.broken = BalancerLostError("no answer came")
        pool.port.open_gate.set()
        await asyncio.sleep(1.0)
        pool.port.broken = None
        assert len((await call).token_ids) == 8
        assert pool.port.asked > 2


@virtually
async def test_a_session_that_ended_while_nobody_listened_is_over():
    async with simulated_pool() as pool:
        client = await pool.greeted("s")
        pool.port.broken = BalancerLostError("for a moment")
        client.end_session("s")
        await asyncio.sleep(1.0)
        pool.port.broken = None
        await until(lambda: pool.balancer.pins() == {})


@virtually
async def test_a_session_whose_end_met_a_balancer_that_had_given_the_client_up_is_over():
    async with simulated_pool() as pool:
        client = await pool.greeted("s")
        pool.balancer.on_change = lambda: None  # it is the report that meets it, not the watch
        pool.balancer.release_owner(client.owner)
        client.end_session("s")
        await until(lambda: pool.balancer.pins() == {})


# -- for good --------------------------------------------------------------------------------


@virtually
async def test_when_the_pool_is_closed_everybody_hears_of_it():
    async with manual_pool(flush_s=0.05, capacity=1) as pool:
        client = pool.client()
        call, request = await opened(pool, client)
        waiting = [asyncio.ensure_future(generate(client, f"t{i}")) for i in range(3)]
        await until(lambda: pool.balancer.snapshot().queued == 3)
        pool.port.broken = PoolClosedError("the pool was closed")
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(answer) for answer in answers] == [PoolClosedError] * 3
        assert (await answered(pool, call, request)).token_ids == [5], "the replica still lives"
        for session in ("s", "new"):
            with pytest.raises(PoolClosedError):
                await generate(client, session)
        with pytest.raises(PoolClosedError):
            await generate(pool.client(), "of a client that never met it")
        pool.port.broken = None
        await client.aclose()


@virtually
async def test_turns_on_pins_end_with_the_pool_too():
    async with simulated_pool() as pool:
        client = await pool.greeted("s")
        pool.port.broken = PoolClosedError("the pool was closed")
        await asyncio.sleep(5.0)
        with pytest.raises(PoolClosedError):
            await generate(client, "s")
        pool.port.broken = None


@virtually
async def test_an_error_that_nobody_foresaw_reaches_who_waits_and_is_got_over():
    async with simulated_pool() as pool:
        client = pool.client()
        pool.port.broken = RuntimeError("odd")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="odd"):
                await generate(client)
        pool.port.broken = None
        assert len((await generate(client)).token_ids) == 8
        pool.port.broken = RuntimeError("odder")
        with pytest.raises(RuntimeError, match="odder"):
            await generate(client, "new")
        await asyncio.sleep(5.0)
        pool.port.broken = None
        assert len((await generate(client, "new")).token_ids) == 8
        await asyncio.sleep(5.0)
        assert pool.balancer.snapshot().clients == 1, "the watch goes on"
