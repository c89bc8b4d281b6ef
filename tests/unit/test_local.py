"""A pool in this process: what fails, comes, goes and flaps in it costs nobody a call."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inprocess import (
    Step,
    WatchedEngine,
    assert_aligned,
    generate,
    pool_of,
    simulated_pool,
    undisturbed,
    until,
    virtually,
)
from tests.unit.metrics.test_runs import a_run, ended
from workbench.client import LLMServerClient
from workbench.config import RoutingConfig
from workbench.engines.simulated import SimulatedArgs
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import BalancerLostError, ConfigError, PoolClosedError, ReplicaLostError
from workbench.local import LocalPool
from workbench.types import ReplicaState

Slow = replace(Step, step_s=0.01)


def state_of(pool, replica_id):
    loads = pool.balancer.snapshot().replicas
    return next(load.state for load in loads if load.replica_id == replica_id)


async def assert_whole(outputs, tokens, *, every=1):
    for i, output in enumerate(outputs):
        assert len(output.token_ids) == tokens
        assert_aligned(output)
        if i % every == 0:
            whole = await undisturbed([i % 40 + 1], max_tokens=tokens)
            assert output.token_ids == whole.token_ids
            assert output.log_probs == whole.log_probs


def calls(client, count, tokens):
    return [
        asyncio.ensure_future(generate(client, f"s{i}", prompt=[i % 40 + 1], max_tokens=tokens))
        for i in range(count)
    ]


# -- the pool itself -------------------------------------------------------------------------


@virtually
async def test_a_pool_is_made_of_a_number_and_what_its_replicas_are_like():
    async with LocalPool(3, SimulatedArgs(stop_token=-1), seed=1) as pool:
        client = pool.client()
        assert isinstance(client, LLMServerClient)
        outputs = await asyncio.gather(*(generate(client, f"s{i}") for i in range(9)))
        assert Counter(output.replica_id for output in outputs) == dict.fromkeys(pool.replicas, 3)


def test_a_pool_of_no_replica_is_refused():
    with pytest.raises(ConfigError, match="engines"):
        LocalPool(0)


@virtually
async def test_a_closed_pool_leaves_no_task_behind():
    before = asyncio.all_tasks()
    async with LocalPool(2, routing=RoutingConfig(report_s=0.01)) as pool:
        await generate(pool.client())
    await until(lambda: asyncio.all_tasks() <= before)


@virtually
async def test_a_balancer_that_was_killed_says_so_until_there_is_another():
    async with LocalPool(1) as pool:
        await pool.kill_balancer()
        with pytest.raises(BalancerLostError):
            await pool.port.watch("me", 0)
        pool.restart_balancer()
        assert (await generate(pool.client())).replica_id == "replica-0"


# -- deaths ----------------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2])
@virtually
async def test_when_a_replica_is_killed_under_64_calls_they_all_complete(after_s):
    async with simulated_pool(*[Slow] * 4) as pool:
        running = calls(pool.client(), 64, 30)
        await until(lambda: pool.in_flight == 64)
        await asyncio.sleep(after_s)
        pool.replicas["replica-2"].kill()
        outputs = await asyncio.gather(*running)
        assert state_of(pool, "replica-2") is ReplicaState.UNHEALTHY
    assert {output.attempts for output in outputs} == {1, 2}
    assert "replica-2" not in {output.replica_id for output in outputs}
    await assert_whole(outputs, 30, every=8)


@virtually
async def test_with_one_of_four_dead_each_session_is_affected_once_and_no_call_is_lost():
    async with simulated_pool(*[Step] * 4) as pool:
        client = pool.client()
        pool.replicas["replica-1"].kill()
        failed = Counter()
        for _ in range(4):
            names = [f"s{i}" for i in range(40)]
            outputs = await asyncio.gather(*(generate(client, name) for name in names))
            failed.update(
                {n: o.attempts - 1 for n, o in zip(names, outputs, strict=True) if o.attempts > 1}
            )
        assert 0 < len(failed) <= 10, "a quarter of the sessions were there, once"
        assert set(failed.values()) == {1}
        assert state_of(pool, "replica-1") is ReplicaState.UNHEALTHY


@settings(max_examples=20, deadline=None)
@given(
    deaths=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    kill_after=st.integers(0, 12),
    budget=st.integers(1, 20),
)
def test_budget_and_tokens_hold_over_deaths_of_engines_and_processes(deaths, kill_after, budget):
    async def play():
        dying = [replace(Slow, die_after_tokens=limit) for limit in deaths]
        async with simulated_pool(Slow, *dying, Slow) as pool:
            running = calls(pool.client(), 6, budget)
            await asyncio.sleep(kill_after * 0.01)
            pool.replicas["replica-0"].kill()
            await assert_whole(await asyncio.gather(*running), budget)

    run_virtual(asyncio.wait_for(play(), 600))


# -- failures that pass ----------------------------------------------------------------------


class Flaky(WatchedEngine):
    """Fails on the next ``failures`` requests."""

    failures = 0

    async def add(self, request):
        if self.failures:
            self.failures -= 1
            raise ReplicaLostError("replica-0 is out of breath")
        await super().add(request)


@virtually
async def test_an_engine_that_fails_three_times_leaves_and_comes_back_once_it_is_well():
    flaky = Flaky("replica-0", Step)
    async with pool_of([flaky, WatchedEngine("replica-1", Step)], max_failures=3) as pool:
        client = pool.client()
        flaky.failures = 3
        outputs = []
        while state_of(pool, "replica-0") is ReplicaState.READY:
            outputs.append(await generate(client, f"s{len(outputs)}"))
            await until(lambda: not pool.in_flight)
        assert flaky.failures == 0
        assert pool.balancer.snapshot().failures == 3
        elsewhere = await generate(client, "meanwhile")
        assert elsewhere.replica_id == "replica-1"
        await until(lambda: state_of(pool, "replica-0") is ReplicaState.READY)
        more = [await generate(client, f"t{i}") for i in range(20)]
        assert {output.replica_id for output in more} == {"replica-0", "replica-1"}
    assert all(len(output.token_ids) == 8 for output in [*outputs, *more])


@virtually
async def test_a_replica_that_is_back_is_trusted_with_one_request_until_it_succeeds():
    flaky = Flaky("replica-0", Step)
    async with pool_of([flaky, WatchedEngine("replica-1", Step)], max_failures=1) as pool:
        client = pool.client()
        pool.pin("s", 0)
        flaky.failures = 2
        assert (await generate(client, "s")).replica_id == "replica-1"
        await until(lambda: state_of(pool, "replica-0") is ReplicaState.READY)
        outputs = await asyncio.gather(*(generate(client, f"t{i}") for i in range(20)))
        assert sorted(output.attempts for output in outputs) == [1] * 19 + [2]
        assert state_of(pool, "replica-0") is ReplicaState.UNHEALTHY


@virtually
async def test_a_replica_that_flaps_costs_no_call():
    async with simulated_pool(*[Slow] * 3) as pool:
        running = calls(pool.client(), 30, 20)
        for i in range(10):
            state = (ReplicaState.UNHEALTHY, ReplicaState.READY)[i % 2]
            pool.balancer.set_state("replica-0", state)
            await asyncio.sleep(0.01)
        await assert_whole(await asyncio.gather(*running), 20, every=6)


# -- coming and going ------------------------------------------------------------------------


@virtually
async def test_a_replica_that_is_added_gets_work():
    async with simulated_pool(Slow) as pool:
        client = pool.client()
        running = calls(client, 8, 20)
        await until(lambda: pool.in_flight == 8)
        assert await pool.add(Slow) == "replica-1"
        output = await generate(client, "new")
        assert output.replica_id == "replica-1"
        await assert_whole(await asyncio.gather(*running), 20, every=4)


@virtually
async def test_the_calls_of_a_replica_that_is_removed_go_on_elsewhere():
    async with simulated_pool(Slow, Slow) as pool:
        client = pool.client()
        running = calls(client, 12, 20)
        await until(lambda: pool.in_flight == 12)
        await asyncio.sleep(0.05)
        await pool.remove("replica-0")
        outputs = await asyncio.gather(*running)
        assert {output.replica_id for output in outputs} == {"replica-1"}
        assert pool.balancer.get_all_servers() == ["replica-1"]
        await pool.add(Slow)
        assert (await generate(client, "new")).replica_id == "replica-2"
    await assert_whole(outputs, 20, every=4)


# -- what it did over time -------------------------------------------------------------------


@virtually
async def test_a_pool_has_a_history_by_its_own_clock():
    async with simulated_pool(Slow, Slow) as pool:
        calls_ = calls(pool.client(), 8, 500)
        await asyncio.sleep(10.5)
        for call in calls_:
            call.cancel()
        assert pool.feed.pull()
        block = pool.feed.window(0, 20)
        assert block.times_s.tolist() == list(range(11))
        assert block.replica_ids == ("replica-0", "replica-1")
        assert block.replica("in_flight")[1:5].tolist() == [[4, 4]] * 4
        assert block.replica("running")[1:5].tolist() == [[4, 4]] * 4
        assert block.total("generation_tokens_per_s")[4] == pytest.approx(800, rel=0.05)
        latest = pool.feed.latest
        assert dict(latest.heard_s) == {"replica-0": 10.0, "replica-1": 10.0}


@virtually
async def test_what_dies_is_missing_in_the_history_and_not_zero():
    async with simulated_pool(Slow, Slow) as pool:
        await asyncio.sleep(1.5)
        pool.replicas["replica-0"].kill()
        await asyncio.sleep(2)
        await pool.kill_balancer()
        await asyncio.sleep(2)
        pool.restart_balancer()
        await asyncio.sleep(2)
        pool.feed.pull()
        block = pool.feed.window(0, 20)
        running = block.replica("running")
        assert running[:2].tolist() == [[0, 0]] * 2
        assert np.isnan(running[2:, 0]).all()
        assert (running[:, 1] == 0).all()
        books = np.isnan(block.total("sessions"))
        assert books.tolist() == [False] * 4 + [True] * 2 + [False] * 2
        assert dict(pool.feed.latest.heard_s) == {"replica-0": 1.0, "replica-1": 7.0}


@virtually
async def test_a_feed_pages_what_the_balancer_knows_until_the_pool_is_closed():
    async with LocalPool(2, Step) as pool:
        client = pool.client()
        await asyncio.gather(*(generate(client, f"s{i}") for i in range(5)))
        feed = pool.feed
        assert feed.sessions(1, 2)["session_id"].tolist() == ["s1", "s2"]
        events = feed.events(0, 4)
        assert len(events) == 4
        rest = feed.events(events.attrs["cursor"])
        assert rest["number"].iloc[0] == events["number"].iloc[-1] + 1
        pool.recorder.runs.note(a_run("mine"), [ended("task-0/0")])
        await asyncio.sleep(1.5)
        assert not feed.closed
        assert [trajectory.rollout_id for trajectory in feed.rollouts("mine")] == ["task-0/0"]
    assert feed.pull(), "what was recorded before the end"
    assert not feed.pull()
    assert feed.closed
    with pytest.raises(PoolClosedError):
        feed.sessions()
    assert len(feed.window(0, 20)) == 2


async def test_in_real_time_a_history_is_of_today_and_read_from_any_thread():
    before_s = time.time()
    async with LocalPool(1, Step, sample_s=0.01) as pool:
        await generate(pool.client(), "mine")
        sessions = await asyncio.to_thread(pool.feed.sessions)
        assert sessions["session_id"].tolist() == ["mine"]
        with pytest.raises(ConfigError, match="cursor"):
            await asyncio.to_thread(pool.feed.events, -1)
        await until(lambda: pool.feed.pull() and len(pool.feed.window(0, math.inf)) > 2)
        latest = pool.feed.latest
        assert before_s - 1 < latest.time_s < time.time() + 1
    assert pool.feed.period_s == 0.01
