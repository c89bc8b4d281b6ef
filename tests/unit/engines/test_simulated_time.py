"""How long things take in the simulated engine, to the last bit: in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.engines.test_simulated import collect, engine, in_virtual_time, now, request
from workbench.engines.simulated import SimulatedArgs
from workbench.metrics.buckets import count, empty_counts

POLL_S = 1000.0
"""Longer than any step: only what is urgent wakes the one who waits."""


async def last_of(made, *requests):
    """The last deltas, in the order of the requests."""
    for one in requests:
        await made.add(one)
    deltas = await collect(made, *(one.request_id for one in requests), wait_s=POLL_S)
    return [deltas[one.request_id][-1] for one in requests]


def histogram(*times_s):
    counts = empty_counts()
    for time_s in times_s:
        count(counts, time_s)
    return tuple(counts)


@in_virtual_time
async def test_steps_take_longer_with_more_requests():
    async with engine(step_s=1.0, step_s_per_request=0.25) as made:
        await last_of(made, request(max_tokens=4))
        assert now() == 4 * 1.25
        await last_of(made, *(request(request_id=f"r{i}", max_tokens=4) for i in range(3)))
        assert now() == 4 * 1.25 + 4 * 1.75


@in_virtual_time
async def test_a_prompt_is_paid_for_in_the_step_that_admits_it_and_only_where_it_is_not_cached():
    async with engine(step_s=1.0, prefill_s_per_token=0.5, block_tokens=4) as made:
        (first,) = await last_of(made, request(range(1, 11), max_tokens=2))
        assert first.first_token_s == 1.0 + 10 * 0.5
        assert now() == 2.0 + 10 * 0.5
        (again,) = await last_of(made, request(range(1, 11), max_tokens=2))
        assert again.first_token_s == 1.0 + 2 * 0.5
        assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 8)
        figures = made.figures()
    assert (figures.prompt_tokens, figures.cached_prompt_tokens) == (20, 8)
    assert figures.prefix_hit_rate == 0.4
    assert figures.ttft_counts == histogram(6.0, 2.0)


@in_virtual_time
async def test_the_time_in_the_queue_ends_with_the_step_that_admits():
    async with engine(step_s=1.0, max_num_seqs=1) as made:
        await made.add(request(request_id="first", max_tokens=3))
        await asyncio.sleep(0.5)
        await made.add(request(request_id="second", max_tokens=1))
        deltas = await collect(made, "first", "second", wait_s=POLL_S)
    first, second = deltas["first"][-1], deltas["second"][-1]
    assert (first.queue_s, first.first_token_s) == (0.0, 1.0)
    assert (second.queue_s, second.first_token_s) == (2.5, 3.5)


@in_virtual_time
async def test_every_delta_after_the_first_token_says_how_long_that_took():
    async with engine(step_s=1.0, stop_token=-1) as made:
        await made.add(request(max_tokens=10))
        await asyncio.sleep(0.5)
        assert made.drain() == []
        await asyncio.sleep(1.0)
        (first,) = made.drain()
        await asyncio.sleep(3.0)
        (later,) = made.drain()
    assert (len(first.token_ids), len(later.token_ids)) == (1, 3)
    assert (first.first_token_s, later.first_token_s) == (1.0, 1.0)


@in_virtual_time
async def test_only_a_first_token_or_an_end_wakes_who_waits():
    async with engine(step_s=1.0, stop_token=-1) as made:
        await made.add(request(max_tokens=5))
        woken = []
        for _ in range(2):
            await made.wait(POLL_S)
            woken.append(now())
            made.drain()
        await made.wait(POLL_S)
        woken.append(now())
    assert woken == [1.0, 5.0, 5.0 + POLL_S]


@in_virtual_time
async def test_figures_tell_who_runs_who_waits_and_how_full_the_cache_is():
    async with engine(step_s=1.0, block_tokens=4, kv_blocks=8, max_num_seqs=2) as made:
        for i in range(3):
            await made.add(request(range(10 * i, 10 * i + 5), request_id=f"r{i}"))
        figures = made.figures()
        assert (figures.running, figures.waiting, figures.kv_cache_usage) == (0, 3, 0.0)
        await asyncio.sleep(0.5)
        figures = made.figures()
        assert (figures.running, figures.waiting, figures.kv_cache_usage) == (2, 1, 0.5)
        await made.abort([f"r{i}" for i in range(3)])
        figures = made.figures()
        assert (figures.running, figures.waiting, figures.kv_cache_usage) == (0, 0, 0.0)
        assert figures.finished == 3


@in_virtual_time
async def test_urgent_requests_do_not_wait_behind_others():
    async with engine(step_s=1.0, max_num_seqs=1) as made:
        await made.add(request(request_id="running", max_tokens=2))
        await asyncio.sleep(0.5)
        await made.add(request(request_id="later", max_tokens=2))
        await made.add(request(request_id="urgent", max_tokens=2, priority=-1))
        deltas = await collect(made, "running", "later", "urgent", wait_s=POLL_S)
    assert deltas["urgent"][-1].queue_s == 1.5
    assert deltas["later"][-1].queue_s == 3.5


@in_virtual_time
async def test_preemption_costs_time_but_no_token_and_is_counted():
    args = {"step_s": 1.0, "prefill_s_per_token": 0.25, "block_tokens": 4, "stop_token": -1}
    pair = [request(range(1, 5), "old", max_tokens=8), request(range(5, 9), "young", max_tokens=8)]
    async with engine(**args) as made:
        freely = await collect_all(made, pair)
        assert now() == 8 * 1.0 + 8 * 0.25
    began = now()
    async with engine(**args, kv_blocks=4) as made:
        tightly = await collect_all(made, pair)
        figures = made.figures()
    # Five tokens each, then the young one is pushed out. It comes back when the old one has ended,
    # with its first block still cached.
    assert now() - began == (8 + 3) * 1.0 + (8 + 5) * 0.25
    assert tightly[0] == freely[0]
    assert [d.num_preempted for d in (freely[1][-1], tightly[0][-1], tightly[1][-1])] == [0, 0, 1]
    assert figures.num_preempted == 1
    assert tightly[1][-1].queue_s == 0.0  # of its first admission
    assert [t for d in tightly[1] for t in d.token_ids] == [
        t for d in freely[1] for t in d.token_ids
    ]


async def collect_all(made, requests):
    for one in requests:
        await made.add(one)
    deltas = await collect(made, *(one.request_id for one in requests), wait_s=POLL_S)
    return [deltas[one.request_id] for one in requests]


@in_virtual_time
async def test_a_request_that_is_stopped_in_a_step_gets_no_token_of_it():
    async with engine(step_s=1.0, stop_token=-1) as made:
        await made.add(request())
        await asyncio.sleep(2.5)
        await made.abort(["r"])
        (delta,) = made.drain()
        assert len(delta.token_ids) == 2
        await asyncio.sleep(10.0)
        assert made.drain() == []
        assert made.figures().generation_tokens == 2


@in_virtual_time
async def test_a_request_that_never_ran_knows_nothing_of_the_cache():
    async with engine(step_s=1.0, max_num_seqs=1) as made:
        await made.add(request(request_id="running"))
        await made.add(request(request_id="waiting"))
        await asyncio.sleep(0.5)
        await made.abort(["waiting"])
        (delta,) = made.drain()
    assert (delta.num_cached_tokens, delta.queue_s, delta.first_token_s) == (None, None, None)


@pytest.mark.parametrize("step_s", [0.0, 0.5])
@in_virtual_time
async def test_an_idle_engine_has_no_task(step_s):
    async with engine(step_s=step_s) as made:
        await last_of(made, request(max_tokens=3))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_without_a_duration_each_step_still_lets_others_run():
    assert SimulatedArgs().step_s_per_request == SimulatedArgs().prefill_s_per_token == 0.0
    async with engine(step_s=0.0, stop_token=-1) as made:
        await made.add(request(max_tokens=4000))
        for turn in range(20):
            assert made.figures().generation_tokens <= turn
            await asyncio.sleep(0)
        assert made.figures().generation_tokens > 10
        assert now() == 0.0
