"""Pauses and new weights: who goes on, under which version each token was sampled."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.engines.test_simulated import (
    collect,
    engine,
    in_virtual_time,
    now,
    request,
    tokens_of,
)
from workbench.errors import ReplicaDiedError
from workbench.types import FinishReason, VersionSpan

STEP = {"step_s": 1.0, "stop_token": -1}


async def finished_at(call):
    await call
    return now()


@in_virtual_time
async def test_a_kept_request_goes_on_with_the_same_tokens_where_it_stopped():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=6))
        undisturbed = tokens_of((await collect(made, "r", wait_s=100))["r"])
        began = now()
        await made.add(request(max_tokens=6))
        await asyncio.sleep(2.5)
        await made.pause("keep")
        assert now() - began == 3.0  # the step under way was ended
        await asyncio.sleep(50.0)
        assert made.figures().generation_tokens == 6 + 3
        await made.resume()
        deltas = (await collect(made, "r", wait_s=100))["r"]
        assert now() - began == 53.0 + 3.0
    assert tokens_of(deltas) == undisturbed
    assert deltas[-1].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
@in_virtual_time
async def test_a_paused_engine_takes_requests_and_runs_them_afterwards(mode):
    async with engine(**STEP) as made:
        await made.pause(mode)
        await made.add(request(max_tokens=1))
        await asyncio.sleep(10.0)
        assert (made.figures().waiting, made.figures().running) == (1, 0)
        await made.resume()
        (delta,) = (await collect(made, "r", wait_s=100))["r"]
    assert (delta.queue_s, delta.first_token_s) == (10.0, 11.0)


@in_virtual_time
async def test_aborting_ends_all_that_are_there_and_none_that_come():
    async with engine(**STEP, max_num_seqs=1) as made:
        for name in ("running", "waiting"):
            await made.add(request(request_id=name))
        await asyncio.sleep(1.5)
        await made.pause("abort")
        assert now() == 2.0
        deltas = {delta.request_id: delta for delta in made.drain()}
        assert {d.finish_reason for d in deltas.values()} == {FinishReason.ABORT}
        assert [len(deltas[name].token_ids) for name in ("running", "waiting")] == [2, 0]
        await made.add(request(request_id="later", max_tokens=1))
        await made.resume()
        (later,) = (await collect(made, "later", wait_s=100))["later"]
    assert later.finish_reason is FinishReason.LENGTH


@in_virtual_time
async def test_waiting_lets_the_running_end_and_nobody_else_in():
    async with engine(**STEP, max_num_seqs=2) as made:
        for name, tokens in (("short", 2), ("long", 5), ("queued", 1)):
            await made.add(request(request_id=name, max_tokens=tokens))
        await asyncio.sleep(0.5)
        await made.pause("wait")
        assert now() == 5.0
        ended = {delta.request_id for delta in made.drain() if delta.is_last}
        assert ended == {"short", "long"}
        await made.resume()
        (queued,) = (await collect(made, "queued", wait_s=100))["queued"]
    assert queued.queue_s == 5.0


@in_virtual_time
async def test_frozen_requests_go_on_when_the_pause_becomes_one_that_waits():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=5))
        await asyncio.sleep(1.5)
        await made.pause("keep")
        await asyncio.sleep(8.0)
        await made.pause("wait")
        assert now() == 10.0 + 3.0
        assert made.figures().finished == 1


@in_virtual_time
async def test_a_paused_engine_whose_requests_were_aborted_has_no_task():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(0.5)
        await made.pause("keep")
        await made.abort(["r"])
        await asyncio.sleep(1.0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_pause_that_waits_ends_when_what_it_waits_for_is_aborted():
    async with engine(**STEP) as made:
        await made.add(request())
        pausing = asyncio.create_task(finished_at(made.pause("wait")))
        await asyncio.sleep(2.25)
        await made.abort(["r"])
        assert await pausing == 3.0


@in_virtual_time
async def test_a_pause_that_waits_ends_when_it_is_over():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=100))
        pausing = asyncio.create_task(finished_at(made.pause("wait")))
        await asyncio.sleep(2.25)
        await made.resume()
        assert await pausing == 2.25
        assert len((await collect(made, "r", wait_s=100))["r"][-1].token_ids) > 90


@in_virtual_time
async def test_an_abort_that_was_taken_back_aborts_nobody():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=3))
        await asyncio.sleep(0.5)
        pausing = asyncio.create_task(made.pause("abort"))
        await asyncio.sleep(0.25)
        await made.resume()
        await pausing
        (last,) = (await collect(made, "r", wait_s=100))["r"][-1:]
    assert last.finish_reason is FinishReason.LENGTH


@in_virtual_time
async def test_a_pause_of_a_dead_engine_says_so():
    async with engine(**STEP) as made:
        await made.add(request())
        pausing = asyncio.create_task(made.pause("wait"))
        await asyncio.sleep(1.5)
        made.die("told to")
        with pytest.raises(ReplicaDiedError, match="told to"):
            await pausing
        with pytest.raises(ReplicaDiedError):
            await made.update_version(1)


async def test_an_unknown_mode_is_refused():
    async with engine() as made:
        with pytest.raises(ValueError, match=r"'sleep' .*keep, abort, wait"):
            await made.pause("sleep")


@in_virtual_time
async def test_each_delta_has_tokens_of_one_version_and_the_spans_are_exact():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=7))
        await asyncio.sleep(2.5)
        await made.update_version(1)
        assert now() == 3.0  # the step under way was of the old weights
        await asyncio.sleep(2.5)
        await made.update_version(5)
        await asyncio.sleep(1.0)
        await made.wait(0.0)
        handed = []
        for _ in range(3):
            handed += made.drain()
            if len(handed) < 3:
                before = now()
                await made.wait(1000.0)
                assert now() == before  # the rest comes at once
        assert now() == 7.0
    assert [(delta.version, len(delta.token_ids)) for delta in handed] == [(0, 3), (1, 3), (5, 1)]
    assert [delta.is_last for delta in handed] == [False, False, True]
    assert [delta.version_spans for delta in handed[:2]] == [(), ()]
    assert handed[-1].version_spans == (
        VersionSpan(0, 0, 3),
        VersionSpan(1, 3, 6),
        VersionSpan(5, 6, 7),
    )


@in_virtual_time
async def test_an_aborted_request_hands_over_the_older_tokens_first():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(1.5)
        await made.update_version(1)
        await asyncio.sleep(1.5)
        await made.abort(["r"])
        first, second = [*made.drain(), *made.drain()]
    assert (first.version, first.finish_reason) == (0, None)
    assert (second.version, second.finish_reason) == (1, FinishReason.ABORT)


@in_virtual_time
async def test_tokens_do_not_depend_on_the_version():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=4))
        old = tokens_of((await collect(made, "r", wait_s=100))["r"])
        await made.update_version(3)
        await made.add(request(max_tokens=4))
        (delta,) = (await collect(made, "r", wait_s=100))["r"][-1:]
        assert delta.version == 3
        assert delta.version_spans == (VersionSpan(3, 0, 4),)
        assert old[-3:] == delta.token_ids


@in_virtual_time
async def test_new_requests_reuse_nothing_of_an_older_version_while_kept_ones_go_on():
    async with engine(**STEP, block_tokens=4, prefill_s_per_token=0.25) as made:
        await made.add(request(range(9), "kept", max_tokens=8))
        await asyncio.sleep(1.0)
        await made.pause("keep")
        await made.update_version(1)
        await made.resume()
        await made.add(request(range(9), "new", max_tokens=1))
        deltas = await collect(made, "kept", "new", wait_s=100)
        assert made.figures().num_preempted == 0
        assert now() == 8 * 1.0 + (9 + 9) * 0.25
    assert deltas["new"][-1].num_cached_tokens == 0


@in_virtual_time
async def test_recomputing_charges_kept_requests_for_their_context():
    async with engine(**STEP, block_tokens=4, prefill_s_per_token=0.25) as made:
        await made.add(request(range(9), max_tokens=4))
        await asyncio.sleep(1.0)
        await made.pause("keep")
        await made.update_version(1, recompute=True)
        assert made.figures().running == 0
        await made.resume()
        deltas = (await collect(made, "r", wait_s=100))["r"]
        assert now() == 4 * 1.0 + (9 + 10) * 0.25
    assert deltas[-1].num_preempted == 1
    assert deltas[-1].version_spans == (VersionSpan(0, 0, 1), VersionSpan(1, 1, 4))
