"""Leases from pins that the client holds, and what reaches it of the balancer's decisions."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.inprocess import (
    PROMPT,
    GatedBalancer,
    Step,
    answered,
    generate,
    manual_pool,
    now,
    opened,
    simulated_pool,
    until,
    virtually,
)
from workbench.balancer.host import TICK_S
from workbench.client import desk as desk_module
from workbench.errors import BalancerLostError
from workbench.routing.policies.sticky import StickyLeastLoaded
from workbench.types import EventKind, FinishReason, ReplicaState

REPORT_S = 0.5


def events(pool, kind):
    return [event for event in pool.balancer.events().items if event.kind is kind]


# -- turns without asking --------------------------------------------------------------------


@virtually
async def test_the_turns_of_a_pinned_session_need_no_call_before_they_begin():
    async with simulated_pool(Step, Step, report_s=REPORT_S) as pool:
        client = await pool.greeted("s")
        before = len(pool.port.reports)
        for _ in range(5):
            await generate(client, "s")
        assert len(pool.port.reports) == before
        await until(lambda: pool.balancer.snapshot().acquired == 6)
        assert (pool.port.asked, len(pool.port.reports)) == (1, before + 1)
        assert pool.balancer.session("s").turns == 6


@virtually
async def test_the_first_turns_of_many_sessions_are_asked_for_together():
    async with simulated_pool(Step, Step, report_s=REPORT_S) as pool:
        client = await pool.greeted()
        before = len(pool.port.reports)
        outputs = await asyncio.gather(*(generate(client, f"s{i}") for i in range(100)))
        assert len(outputs) == 100
        assert pool.port.asked == 101
        assert len(pool.port.reports) - before <= 3


@virtually
async def test_the_balancers_view_is_behind_by_the_report_interval_at_most():
    async with manual_pool(report_s=REPORT_S) as pool:
        client = pool.client()
        await answered(pool, *await opened(pool, client))
        await until(lambda: pool.in_flight == 0)
        began = now()
        call, request = await opened(pool, client)
        assert pool.in_flight == 0, "nobody was asked"
        await until(lambda: pool.in_flight == 1)
        assert now() - began <= REPORT_S + 0.01
        await asyncio.sleep(1.0)  # the long poll may end meanwhile; nothing else may come
        await answered(pool, call, request)
        await until(lambda: pool.in_flight == 0)
        assert max(report.age_s for report in pool.port.reports) <= REPORT_S + 0.01


@virtually
async def test_history_follows_turns_that_nobody_asked_for():
    async with simulated_pool(report_s=REPORT_S) as pool:
        client = pool.client()
        for _ in range(3):
            await generate(client, max_tokens=4)
        await until(lambda: pool.balancer.snapshot().acquired == 3 and not pool.in_flight)
        info = pool.balancer.session("s")
        assert (info.turns, info.prompt_tokens, info.sampled_tokens) == (3, 3 * len(PROMPT), 12)


@virtually
async def test_two_clients_see_the_same_pin():
    async with simulated_pool(Step, Step, Step) as pool:
        one, other = pool.client_by(GatedBalancer(pool)), pool.client_by(GatedBalancer(pool))
        homes = [(await generate(client)).replica_id for client in (one, other, one, other)]
        assert len(set(homes)) == 1
        target = next(r for r in pool.replicas if r != homes[0])
        pool.balancer.move_session("s", target)
        await asyncio.sleep(TICK_S)
        assert [(await generate(client)).replica_id for client in (other, one)] == [target] * 2
        await until(lambda: not pool.in_flight)
        assert pool.balancer.session("s").turns == 6


# -- the balancer's decisions ----------------------------------------------------------------


def drain(pool):
    pool.balancer.set_state("replica-0", ReplicaState.DRAINING)


def move(pool):
    pool.balancer.move_session("s", "replica-1")


def remove(pool):
    pool.balancer.remove_servers(["replica-0"])


def fail(pool):
    pool.balancer.set_state("replica-0", ReplicaState.UNHEALTHY)


def hear_of_a_death(pool):
    pool.balancer.report_death(pool.balancer.acquire_server("s"))


@pytest.mark.parametrize("decide", [drain, move, remove, fail, hear_of_a_death])
@virtually
async def test_a_decision_takes_effect_with_the_next_turn(decide):
    async with manual_pool(2, report_s=REPORT_S) as pool:
        pool.pin("s", 0)
        client = pool.client()
        await answered(pool, *await opened(pool, client))
        call, request = await opened(pool, client)
        decide(pool)
        await asyncio.sleep(TICK_S)
        output = await answered(pool, call, request)
        assert (output.replica_id, output.token_ids) == ("replica-0", [5]), "it finishes there"
        output = await answered(pool, *await opened(pool, client, engine=1), engine=1)
        assert output.replica_id == "replica-1"
        assert len(pool.engines[0].asked) == 2


@virtually
async def test_a_draining_replica_takes_no_new_session_and_says_when_it_is_empty():
    async with manual_pool(2) as pool:
        pool.pin("s", 0)
        client = pool.client()
        call, request = await opened(pool, client)
        drain(pool)
        others = [await opened(pool, client, f"t{i}", engine=1) for i in range(4)]
        assert events(pool, EventKind.DRAINED) == []
        await answered(pool, call, request)
        await until(lambda: events(pool, EventKind.DRAINED))
        for other, asked in others:
            await answered(pool, other, asked, engine=1)


@virtually
async def test_a_session_lease_yields_to_load():
    """Far above the others, a replica's sessions have to ask, and go where there is less to do."""
    async with manual_pool(2, report_s=0.01, policy=StickyLeastLoaded(margin=2)) as pool:
        client = pool.client()
        names = [f"s{i}" for i in range(6)]
        for name in names:
            pool.pin(name, 0)
            await answered(pool, *await opened(pool, client, name))
        calls = [asyncio.ensure_future(generate(client, name)) for name in names[1:]]
        await until(lambda: pool.balancer.get_inflight_count("replica-0") == 5)
        await asyncio.sleep(TICK_S)
        moved = await answered(pool, *await opened(pool, client, "s0", engine=1), engine=1)
        assert moved.replica_id == "replica-1"
        assert pool.balancer.session("s0").moves == 1
        for request in pool.engines[0].asked:
            pool.engines[0].say(request, 5, finish=FinishReason.STOP)
        assert {(await call).replica_id for call in calls} == {"replica-0"}


# -- signs of life ---------------------------------------------------------------------------


@virtually
async def test_a_client_with_nothing_to_say_keeps_its_leases():
    async with manual_pool(flush_s=0.05, owner_timeout_s=5.0) as pool:
        call, request = await opened(pool, pool.client())
        await asyncio.sleep(30.0)
        assert (pool.in_flight, pool.balancer.snapshot().clients) == (1, 1)
        assert events(pool, EventKind.RECLAIMED) == []
        await answered(pool, call, request)


@virtually
async def test_a_killed_clients_leases_come_back_in_time():
    async with manual_pool(flush_s=0.05, owner_timeout_s=5.0) as pool:
        port = GatedBalancer(pool)
        call, _ = await opened(pool, pool.client_by(port))
        await until(lambda: pool.in_flight == 1)
        port.broken = BalancerLostError("as a process that was killed")
        silent = now()
        async with asyncio.timeout(30.0):
            while pool.in_flight:
                await asyncio.sleep(0.05)
        # Its last long poll may have been heard of just before it ended.
        assert now() - silent <= 5.0 + 2.0 + 2 * TICK_S
        assert [e.session_id for e in events(pool, EventKind.RECLAIMED)] == ["s"]
        call.cancel()
        await asyncio.wait({call})


@virtually
async def test_a_client_that_was_given_up_and_returns_says_what_it_holds():
    async with manual_pool(flush_s=0.05, owner_timeout_s=5.0, session_idle_s=6.0) as pool:
        port = GatedBalancer(pool)
        call, request = await opened(pool, pool.client_by(port))
        port.broken = BalancerLostError("a network that is down")
        await asyncio.sleep(20.0)
        assert (pool.in_flight, pool.balancer.pins()) == (0, {})
        port.broken = None
        await asyncio.sleep(1.0)
        assert (pool.in_flight, pool.balancer.pins()) == (1, {"s": "replica-0"})
        assert (await answered(pool, call, request)).token_ids == [5]


@virtually
async def test_a_closed_client_gives_its_leases_back_at_once():
    async with manual_pool(report_s=5.0) as pool:
        client = pool.client()
        call, _ = await opened(pool, client)
        await client.aclose()
        assert (pool.in_flight, pool.balancer.snapshot().clients) == (0, 0)
        await asyncio.wait({call})


@virtually
async def test_a_client_that_has_to_introduce_itself_does_not_ask_over_and_over():
    async with simulated_pool() as pool:
        await pool.greeted()
        await asyncio.sleep(1.0)
        pool.port.open_gate.clear()
        pool.balancer.release_owner(pool._clients[0].owner)
        before = pool.port.watches
        await asyncio.sleep(1.0)
        assert pool.port.watches - before <= 1.0 / desk_module.RETRY_S + 2
        pool.port.open_gate.set()
        await until(lambda: pool.balancer.snapshot().clients == 1)
