"""What is done to an engine beside serving, and what becomes of the requests meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.unit.engines.test_host import hear, request
from tests.unit.inprocess import WatchedEngine, now, virtually
from workbench.engines.host import EngineHost
from workbench.engines.simulated import Fault, FaultKind, SimulatedArgs
from workbench.errors import ReplicaDiedError
from workbench.types import FinishReason, VersionSpan

STEP_S, LOAD_S = 1.0, 10.0


@asynccontextmanager
async def hosting(**args):
    """A host of an engine that steps once a second and loads for ten."""
    settings = {"step_s": STEP_S, "load_s": LOAD_S, "stop_token": -1, **args}
    engine = WatchedEngine("replica-0", SimulatedArgs(**settings))
    host = EngineHost("replica-0", engine)
    await host.start()
    try:
        yield host, engine
    finally:
        await host.close()


def begin(call):
    return asyncio.ensure_future(call)


async def spans(host, channel="c"):
    """Of the one request that ends on this channel."""
    _, heard = await hear(host, channel)
    return heard[-1].version_spans


# -- updates and the door --------------------------------------------------------------------


@virtually
async def test_an_update_says_what_took_how_long_and_later_tokens_are_of_its_version():
    async with hosting() as (host, _):
        await host.submit("c", [request(max_tokens=4)])
        await asyncio.sleep(1.5)
        update = await host.control.update("w", 3)
        assert (update.replica_id, update.version, host.control.version) == ("replica-0", 3, 3)
        assert not update.error
        assert now() == 2.0 + LOAD_S, "the step under way was ended first"
        assert await spans(host) == (VersionSpan(0, 0, 2), VersionSpan(3, 2, 4))


@virtually
async def test_what_is_submitted_while_weights_change_waits_at_the_door():
    async with hosting(block_tokens=1) as (host, engine):
        await host.submit("c", [request("old", max_tokens=30)])
        await asyncio.sleep(1.5)
        updating = begin(host.control.update("w", 1))
        await asyncio.sleep(1.5)
        submitting = begin(host.submit("late", [request("a", max_tokens=2), request("b")]))
        await asyncio.sleep(LOAD_S - 2)
        assert [asked.request_id for asked in engine.asked] == ["old"]
        assert not updating.done()
        assert not submitting.done()
        await updating
        assert await submitting == [None, None]
        _, heard = await hear(host, "late")
    (last,) = [delta for delta in heard if delta.is_last]
    assert {delta.version for delta in heard} == {1}
    assert last.version_spans == (VersionSpan(1, 0, 2),)
    assert last.num_cached_tokens == 0, "blocks of the old weights are of no use"


@virtually
async def test_an_abort_of_what_waits_at_the_door_takes_effect_and_is_no_interruption():
    async with hosting() as (host, engine):
        updating = begin(host.control.update("w", 1, "abort"))
        await asyncio.sleep(1)
        submitting = begin(host.submit("c", [request("a", session_id="mine"), request("b")]))
        await asyncio.sleep(1)
        assert await host.abort_all("mine") == 1
        await updating
        assert await submitting == [None, None]
        _, heard = await hear(host, "c")
        assert engine.figures().running + engine.figures().waiting == 1
    (last,) = [delta for delta in heard if delta.is_last]
    assert (last.request_id, last.finish_reason) == ("a", FinishReason.ABORT)
    assert (last.token_ids, last.interrupted) == ([], False)


@virtually
async def test_what_an_update_ends_is_marked_and_what_somebody_stopped_meanwhile_is_not():
    async with hosting() as (host, _):
        await host.submit("c", [request("stopped"), request("ended")])
        await asyncio.sleep(1.5)
        await host.abort(["stopped"])
        await host.control.update("w", 1, "abort")
        await host.submit("later", [request("stopped later")])
        await asyncio.sleep(1.5)
        updating = begin(host.control.update("w", 2, "keep"))
        await asyncio.sleep(5)
        await host.abort(["stopped later"])
        await updating
        _, heard = await hear(host, "c", last=2)
        _, later = await hear(host, "later")
    marked = {delta.request_id: delta.interrupted for delta in heard + later if delta.is_last}
    assert marked == {"stopped": False, "ended": True, "stopped later": False}


@virtually
async def test_a_pause_that_ends_requests_is_somebodys_wish():
    async with hosting() as (host, _):
        await host.submit("c", [request()])
        await asyncio.sleep(1.5)
        await host.control.pause("abort")
        _, heard = await hear(host, "c")
    assert (heard[-1].finish_reason, heard[-1].interrupted) == (FinishReason.ABORT, False)


@pytest.mark.parametrize("how", ["a broken file", "a cancellation", "its death"])
@virtually
async def test_weights_that_do_not_load_end_every_request_there_and_the_replica(how):
    async with hosting() as (host, engine):
        if how == "a broken file":
            engine.inject(Fault(FaultKind.LOAD))
        await host.submit("c", [request("inside")])
        await asyncio.sleep(1.5)
        updating = begin(host.control.update("w", 7))
        await asyncio.sleep(1)
        at_door = begin(host.submit("d", [request("at the door")]))
        await asyncio.sleep(1)
        if how == "a cancellation":
            updating.cancel()
        if how == "its death":
            engine.die()
        with pytest.raises((RuntimeError, asyncio.CancelledError, ReplicaDiedError)):
            await updating
        with pytest.raises(ReplicaDiedError):
            await at_door
        _, inside = await hear(host, "c")
        with pytest.raises(ReplicaDiedError):
            await host.submit("e", [request("new")])
        with pytest.raises(ReplicaDiedError) as told:
            host.probe()
        assert host.control.version == 0
        assert not host._owner
    assert isinstance(inside[-1].error, ReplicaDiedError)
    if how == "a broken file":
        assert "did not take weights of version 7: simulated broken weights" in str(told.value)


@virtually
async def test_two_updates_at_once_come_one_after_the_other():
    async with hosting() as (host, _):
        await host.submit("c", [request(max_tokens=4)])
        await asyncio.sleep(1.5)
        first, second = (begin(host.control.update("w", version)) for version in (1, 2))
        await asyncio.sleep(1.0)
        submitting = begin(host.submit("late", [request("late", max_tokens=1)]))
        await first
        assert now() == 2.0 + LOAD_S
        await second
        assert now() >= 2.0 + 2 * LOAD_S
        await submitting
        assert (await spans(host))[-1].version == 2
        assert await spans(host, "late") == (VersionSpan(2, 0, 1),)


# -- pauses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
@virtually
async def test_a_pause_of_somebodys_survives_an_update_until_that_one_resumes(mode):
    async with hosting() as (host, engine):
        await host.submit("c", [request(max_tokens=3)])
        await asyncio.sleep(1.5)
        await host.control.pause("keep")
        await host.control.update("w", 1, mode)
        await host.submit("new", [request("new", max_tokens=1)])
        await asyncio.sleep(50)
        assert engine.figures().generation_tokens == 2
        assert host.control.paused
        await host.control.resume()
        await host.control.resume()
        assert await spans(host, "new") == (VersionSpan(1, 0, 1),)
        before = (VersionSpan(0, 0, 2),)
        assert await spans(host) == (before if mode == "abort" else (*before, VersionSpan(1, 2, 3)))
        assert not host.control.paused


@virtually
async def test_a_pause_that_was_cut_short_is_ended_by_resuming():
    async with hosting() as (host, _):
        await host.submit("c", [request(max_tokens=5)])
        await asyncio.sleep(0.5)
        pausing = begin(host.control.pause("wait"))
        await asyncio.sleep(1)
        pausing.cancel()
        await asyncio.wait([pausing])
        assert host.control.paused
        await host.control.resume()
        await host.submit("new", [request("new", max_tokens=1)])
        await hear(host, "new")


@virtually
async def test_resuming_ends_the_pauses_that_wait_behind_another_one():
    async with hosting() as (host, _):
        await host.submit("c", [request(max_tokens=3)])
        await asyncio.sleep(0.5)
        pauses = [begin(host.control.pause("wait")) for _ in range(2)]
        await asyncio.sleep(0)
        await host.control.resume()
        await asyncio.gather(*pauses)
        assert not host.control.paused
        assert await spans(host) == (VersionSpan(0, 0, 3),)


@virtually
async def test_waiting_lets_those_that_run_end_before_the_weights_come():
    async with hosting(max_num_seqs=1) as (host, _):
        await host.submit("c", [request("runs", max_tokens=4)])
        await asyncio.sleep(0.5)
        await host.submit("d", [request("waits", max_tokens=2)])
        await host.control.update("w", 1, "wait")
        assert now() == 4.0 + LOAD_S
        assert await spans(host) == (VersionSpan(0, 0, 4),)
        assert await spans(host, "d") == (VersionSpan(1, 0, 2),)


# -- caches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", [True, False])
@virtually
async def test_kept_requests_compute_their_blocks_again_where_that_is_asked_for(recompute):
    async with hosting() as (host, engine):
        await host.submit("c", [request(max_tokens=4)])
        await asyncio.sleep(1.5)
        await host.control.update("w", 1, recompute=recompute)
        await hear(host, "c")
        assert engine.figures().num_preempted == recompute


@virtually
async def test_a_cleared_cache_has_nothing_for_anybody():
    async with hosting(block_tokens=2) as (host, _):
        cached = []
        for clear in (False, False, True):
            if clear:
                await host.control.clear_cache()
            channel = f"c{len(cached)}"
            await host.submit(channel, [request(prompt=range(1, 8), max_tokens=1)])
            _, heard = await hear(host, channel)
            cached.append(heard[-1].num_cached_tokens)
    assert cached == [0, 6, 0]


@virtually
async def test_an_engine_without_memory_to_give_back_says_so():
    async with hosting() as (host, _):
        assert not await host.control.sleep()
        assert not await host.control.wake()
