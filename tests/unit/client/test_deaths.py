"""Replicas die, leave and are replaced: a call goes on elsewhere, and says so when it cannot."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inprocess import (
    PROMPT,
    WAIT_S,
    ManualEngine,
    Step,
    assert_aligned,
    generate,
    manual_pool,
    noted_pauses,
    pool_of,
    simulated_pool,
    undisturbed,
    until,
)
from workbench.client import client as client_module
from workbench.errors import NoProgressError, NoReplicaError, ReplicaLostError
from workbench.types import FinishReason


@pytest.mark.parametrize("limit", [1, 2, 7, 20])
async def test_a_replica_that_dies_costs_nothing_but_time(limit):
    whole = await undisturbed(max_tokens=30)
    async with simulated_pool(replace(Step, die_after_tokens=limit), Step) as pool:
        pool.pin("s", 0)
        output = await generate(pool.client(), max_tokens=30)
        resumed = pool.engines[1].asked[0]
        states = {load.replica_id: load.state.value for load in pool.balancer.snapshot().replicas}
    assert (output.token_ids, output.log_probs) == (whole.token_ids, whole.log_probs)
    assert (output.replica_id, output.attempts) == ("replica-1", 2)
    assert output.finish_reason is FinishReason.LENGTH
    assert_aligned(output)
    delivered = len(resumed.prompt_ids) - len(PROMPT)
    assert resumed.prompt_ids == PROMPT + whole.token_ids[:delivered]
    assert resumed.sampling["max_tokens"] == 30 - delivered
    assert states == {"replica-0": "unhealthy", "replica-1": "ready"}


async def test_what_was_delivered_before_the_death_is_kept_and_not_sampled_again():
    async with manual_pool(2) as pool:
        dying, other = pool.engines
        pool.pin("s", 0)
        stream = pool.client().stream("s", prompt_ids=PROMPT, sampling_params={"max_tokens": 4})
        first = asyncio.ensure_future(anext(stream))
        await until(lambda: dying.asked)
        dying.say(dying.asked[0], 5, 6, version=1)
        assert (await first).token_ids == [5, 6]
        dying.die()
        rest = asyncio.ensure_future(_all(stream))
        await until(lambda: other.asked)
        assert other.asked[0].prompt_ids == [*PROMPT, 5, 6]
        assert other.asked[0].sampling["max_tokens"] == 2
        other.say(other.asked[0], 7, 8, version=2, finish=FinishReason.LENGTH)
        assert [d.token_ids for d in await rest] == [[7, 8]]


async def _all(stream):
    return [delta async for delta in stream]


async def test_a_replica_that_dies_with_the_budget_used_up_is_not_missed():
    async with manual_pool(2) as pool:
        dying, other = pool.engines
        pool.pin("s", 0)
        call = asyncio.ensure_future(generate(pool.client(), max_tokens=2))
        await until(lambda: dying.asked)
        dying.say(dying.asked[0], 5, 6)
        await until(lambda: not dying._news)
        dying.die()
        output = await call
        assert other.asked == []
    assert output.token_ids == [5, 6]
    assert (output.finish_reason, output.attempts) == (FinishReason.LENGTH, 1)


async def test_all_calls_on_a_dying_replica_complete_elsewhere():
    async with simulated_pool(replace(Step, die_after_tokens=60), Step) as pool:
        client = pool.client()
        outputs = await asyncio.gather(
            *(generate(client, f"s{i}", prompt=[i + 1], max_tokens=25) for i in range(12))
        )
        assert pool.balancer.get_inflight_count("replica-0") == 0
    for i, output in enumerate(outputs):
        assert len(output.token_ids) == 25
        assert_aligned(output)
        if i % 4 == 0:
            assert output.token_ids == (await undisturbed([i + 1], max_tokens=25)).token_ids


async def test_a_dead_replica_is_out_of_rotation_after_its_first_failure():
    """With one of four dead, each session is affected once at most, and no call is lost."""
    async with simulated_pool(replace(Step, die_after_tokens=1), Step, Step, Step) as pool:
        client = pool.client()
        sessions = [f"s{i}" for i in range(8) for _ in range(3)]
        attempts = [(await generate(client, session)).attempts for session in sessions]
    assert sorted(attempts) == [1] * 23 + [2]


@settings(max_examples=25, deadline=None)
@given(
    deaths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    budget=st.integers(1, 40),
    calls=st.integers(1, 4),
)
def test_the_budget_and_the_tokens_hold_over_any_deaths(deaths, budget, calls):
    async def play():
        dying = [replace(Step, die_after_tokens=limit) for limit in deaths]
        async with simulated_pool(*dying, Step) as pool:
            client = pool.client()
            return await asyncio.gather(
                *(
                    generate(client, f"s{i}", prompt=[i + 1], max_tokens=budget)
                    for i in range(calls)
                )
            )

    async def compare():
        async with asyncio.timeout(WAIT_S):
            for i, output in enumerate(await play()):
                whole = await undisturbed([i + 1], max_tokens=budget)
                assert output.token_ids == whole.token_ids
                assert output.log_probs == whole.log_probs
                assert_aligned(output)

    asyncio.run(compare())


async def test_when_all_replicas_are_dead_the_call_ends_with_an_error_that_says_so():
    dying = replace(Step, die_after_tokens=3)
    async with simulated_pool(dying, dying) as pool:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(NoReplicaError, match=r"replica-0 is unhealthy.*replica-1 is"):
                await generate(pool.client(), max_tokens=100)
        await until(lambda: pool.in_flight == 0)


async def test_a_replica_that_cannot_be_reached_for_a_moment_stays_in_rotation(monkeypatch):
    whole = await undisturbed(max_tokens=8)
    async with simulated_pool(Step) as pool:
        port = pool.balancer.handle("replica-0")
        collect = port.collect
        lost = [ReplicaLostError("replica-0 cannot be reached")]

        async def collect_but_once(channel_id, delivered):
            if lost:
                raise lost.pop()
            return await collect(channel_id, delivered)

        monkeypatch.setattr(port, "collect", collect_but_once)
        output = await generate(pool.client(), max_tokens=8)
        await until(lambda: pool.in_flight == 0)
        (load,) = pool.balancer.snapshot().replicas
    assert output.token_ids == whole.token_ids
    assert output.attempts == 2
    assert (load.state.value, load.failures) == ("ready", 1)


async def test_attempts_that_bring_nothing_back_off_and_stop_at_a_cap(monkeypatch):
    pauses = noted_pauses(monkeypatch)
    async with manual_pool(max_failures=1000) as pool:
        pool.engines[0].refusals["s"] = ReplicaLostError("over and over")
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(NoProgressError, match="4 attempts") as given_up:
                await generate(pool.client(backoff_s=0.1))
        assert len(pool.engines[0].arriving) == client_module.MAX_STALLED_ATTEMPTS
    assert isinstance(given_up.value.__cause__, ReplicaLostError)
    assert pauses == pytest.approx([0.1, 0.2, 0.4])


async def test_progress_starts_the_count_of_stalled_attempts_anew():
    """Many deaths are no reason to give up while each attempt brings something."""
    engines = [ManualEngine(f"replica-{i}") for i in range(8)]
    async with pool_of(engines) as pool:
        call = asyncio.ensure_future(generate(pool.client(), max_tokens=7))
        for token in range(1, 8):
            await until(lambda: any(e.open for e in engines))
            engine = next(e for e in engines if e.open)
            request = engine.asked[0]
            engine.say(request, token)
            await until(lambda engine=engine: not engine._news)
            engine.open.clear()
            engine.die()
        output = await call
    assert output.token_ids == [1, 2, 3, 4, 5, 6, 7]
    assert output.attempts == 7


async def test_a_replica_that_is_removed_after_the_lease_was_granted_costs_nothing():
    async with simulated_pool(Step, Step) as pool:
        pool.pin("s", 0)
        exchange = pool.port.exchange

        async def then_removed(report):
            reply = await exchange(report)
            if reply.grants and "replica-0" in pool.balancer.get_all_servers():
                pool.balancer.remove_servers(["replica-0"])
            return reply

        pool.port.exchange = then_removed
        output = await generate(pool.client())
    assert (output.replica_id, output.attempts) == ("replica-1", 2)


async def test_a_replaced_replica_is_met_anew():
    """Same id, other host: the client's channel to the former one is forgotten."""
    async with manual_pool(1) as pool, manual_pool(1) as spare:
        client = pool.client()
        call = asyncio.ensure_future(generate(client))
        (former,), (latter,) = pool.engines, spare.engines
        await until(lambda: former.asked)
        former.say(former.asked[0], 5)
        await until(lambda: not former._news)
        pool.balancer.remove_servers(["replica-0"])
        pool.balancer.add_servers({"replica-0": spare.balancer.handle("replica-0")})
        former.die()
        await until(lambda: latter.asked)
        assert latter.asked[0].prompt_ids == [*PROMPT, 5]
        latter.say(latter.asked[0], 6, finish=FinishReason.STOP)
        assert (await call).token_ids == [5, 6]


async def test_no_task_is_left_behind_by_a_dead_replica():
    before = asyncio.all_tasks()
    async with simulated_pool(replace(Step, die_after_tokens=5), Step) as pool:
        pool.pin("s", 0)
        await generate(pool.client(), max_tokens=20)
    await until(lambda: asyncio.all_tasks() <= before)
