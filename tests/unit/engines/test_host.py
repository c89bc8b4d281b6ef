"""The host serves many clients, each delta once, and tells every one of them when it dies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.unit.inprocess import WAIT_S, ManualEngine, Step, WatchedEngine, until
from workbench.engines import host as host_module
from workbench.engines.host import EngineHost
from workbench.errors import ReplicaDiedError, RequestError
from workbench.types import FinishReason, GenerateRequest


@asynccontextmanager
async def hosting(engine=None, *, flush_s=0.001):
    engine = engine or ManualEngine()
    host = EngineHost("replica-0", engine, flush_s=flush_s)
    await host.start()
    try:
        yield host, engine
    finally:
        await host.close()


def request(request_id="r", *, prompt=(1, 2), session_id="s", **sampling):
    return GenerateRequest(request_id, list(prompt), sampling, session_id)


async def hear(host, channel_id, delivered=0, *, last=1):
    """Deltas of a channel until ``last`` of them were last words; and what to acknowledge."""
    heard = []
    async with asyncio.timeout(WAIT_S):
        while sum(delta.is_last for delta in heard) < last:
            delivered, deltas = await host.collect(channel_id, delivered)
            heard += deltas
    return delivered, heard


async def test_deltas_reach_the_client_that_asked_and_no_other():
    async with hosting() as (host, engine):
        await host.submit("alice", [request("a")])
        await host.submit("bob", [request("b")])
        engine.say(engine.asked[0], 1, finish=FinishReason.STOP)
        engine.say(engine.asked[1], 2, finish=FinishReason.STOP)
        _, alice = await hear(host, "alice")
        _, bob = await hear(host, "bob")
    assert [d.token_ids for d in alice] == [[1]]
    assert [d.token_ids for d in bob] == [[2]]


async def test_what_was_not_acknowledged_is_told_again():
    async with hosting() as (host, engine):
        await host.submit("c", [request()])
        engine.say(engine.asked[0], 1)
        acknowledge, first = await host.collect("c", 0)
        again = await host.collect("c", 0)
        engine.say(engine.asked[0], 2, finish=FinishReason.STOP)
        _, rest = await hear(host, "c", acknowledge)
    assert again == (acknowledge, first)
    assert [t for d in first + rest for t in d.token_ids] == [1, 2]


async def test_a_client_that_listens_anew_misses_nothing():
    """Its count starts at zero while the host's does not: no delta may be lost for it."""
    async with hosting() as (host, engine):
        await host.submit("c", [request("old")])
        for token in range(1, 4):
            engine.say(engine.asked[0], token)
        engine.say(engine.asked[0], 9, finish=FinishReason.STOP)
        acknowledge, _ = await hear(host, "c")
        assert acknowledge
        assert (await _now(host.collect("c", acknowledge))) is None  # all acknowledged
        await host.submit("c", [request("new")])
        for token in range(1, 8):
            engine.say(engine.asked[1], token)
        engine.say(engine.asked[1], 9, finish=FinishReason.STOP)
        await until(lambda: not host._owner)
        delivered, heard = await hear(host, "c", 0)
        assert (await _now(host.collect("c", delivered))) is None
    assert [t for d in heard for t in d.token_ids] == [1, 2, 3, 4, 5, 6, 7, 9]


async def _now(coro):
    """Its result, or None if it has to wait."""
    try:
        async with asyncio.timeout(0.05):
            return await coro
    except TimeoutError:
        return None


async def test_a_poll_without_news_ends_empty(monkeypatch):
    monkeypatch.setattr(host_module, "POLL_S", 0.01)
    async with hosting() as (host, _):
        async with asyncio.timeout(WAIT_S):
            assert await host.collect("c", 0) == (0, [])


@pytest.mark.parametrize("steps", range(6))
async def test_a_poll_that_is_given_up_as_news_arrives_is_given_up(steps):
    """A cancellation that got lost there would leave the client's listener running."""
    async with hosting() as (host, _):
        polling = asyncio.ensure_future(host.collect("c", 0))
        await until(lambda: "c" in host._channels)
        host._channels["c"].news.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        was_cancelled = polling.cancel()
        await asyncio.wait({polling}, timeout=WAIT_S)
        assert polling.cancelled() == was_cancelled


async def test_a_refused_request_is_an_answer_and_its_neighbours_go_on():
    async with hosting() as (host, engine):
        engine.refusals["bad"] = RequestError("prompt_ids", "is empty")
        answers = await host.submit(
            "c", [request("a"), request("b", session_id="bad"), request("c")]
        )
        assert answers[0] is None
        assert isinstance(answers[1], RequestError)
        assert answers[2] is None
        assert [r.request_id for r in engine.asked] == ["a", "c"]
        for one in engine.asked:
            engine.say(one, 1, finish=FinishReason.STOP)
        _, heard = await hear(host, "c", last=2)
    assert {d.request_id for d in heard} == {"a", "c"}


async def test_the_first_delta_may_come_before_add_returns():
    async with hosting() as (host, engine):
        await host.submit("c", [request("keeps the pump going")])
        engine.admit.clear()
        submitting = asyncio.ensure_future(host.submit("c", [request("early")]))
        await until(lambda: "early" in engine.arriving)
        engine.say(request("early"), 5, finish=FinishReason.STOP)
        _, heard = await hear(host, "c")
        engine.admit.set()
        assert await submitting == [None]
    assert heard[0].token_ids == [5]


async def test_an_abort_stops_one_request_and_leaves_the_others():
    async with hosting() as (host, engine):
        await host.submit("c", [request("a"), request("b")])
        await host.abort(["a", "unknown"])
        _, heard = await hear(host, "c")
        assert engine.open == {"b"}
    assert [(d.request_id, d.finish_reason) for d in heard] == [("a", FinishReason.ABORT)]


async def test_an_abort_while_the_engine_takes_the_request_is_not_lost():
    async with hosting() as (host, engine):
        engine.admit.clear()
        submitting = asyncio.ensure_future(host.submit("c", [request("a")]))
        await until(lambda: engine.arriving)
        await host.abort(["a"])
        engine.admit.set()
        await submitting
        _, heard = await hear(host, "c")
        assert not engine.open
    assert heard[0].finish_reason is FinishReason.ABORT


async def test_an_abort_of_a_request_that_waits_behind_another_is_not_lost():
    """Requests that travel together are handed to the engine one after another."""
    async with hosting() as (host, engine):
        engine.admit.clear()
        submitting = asyncio.ensure_future(host.submit("c", [request("first"), request("second")]))
        await until(lambda: engine.arriving == ["first"])
        await host.abort(["second"])
        engine.admit.set()
        await submitting
        await hear(host, "c")
        assert engine.open == {"first"}


async def test_nothing_is_remembered_of_a_refused_request_that_was_aborted_meanwhile():
    async with hosting() as (host, engine):
        engine.admit.clear()
        engine.refusals["s"] = RequestError("prompt_ids", "is empty")
        submitting = asyncio.ensure_future(host.submit("c", [request("a")]))
        await until(lambda: engine.arriving)
        await host.abort(["a"])
        engine.admit.set()
        await submitting
        assert not host._doomed
        assert not host._owner


async def test_engine_death_reaches_every_open_request_of_every_client():
    async with hosting() as (host, engine):
        await host.submit("alice", [request("a1"), request("a2")])
        await host.submit("bob", [request("b")])
        engine.say(engine.asked[0], 1)
        await host.collect("alice", 0)
        engine.die()
        _, alice = await hear(host, "alice", last=2)
        _, bob = await hear(host, "bob")
    assert all(isinstance(d.error, ReplicaDiedError) for d in alice + bob if d.is_last)


async def test_after_engine_death_nothing_more_is_taken():
    async with hosting() as (host, engine):
        await host.submit("c", [request("a")])
        engine.die()
        await hear(host, "c")
        with pytest.raises(ReplicaDiedError):
            await host.submit("c", [request("b")])


async def test_an_engine_that_breaks_in_an_unforeseen_way_counts_as_dead():
    """A pump that stopped silently would leave every caller waiting for ever."""
    async with hosting() as (host, engine):
        await host.submit("c", [request("a")])
        engine.fail(ValueError("a bug in the engine"))
        _, heard = await hear(host, "c")
    assert isinstance(heard[-1].error, ReplicaDiedError)
    assert "a bug in the engine" in str(heard[-1].error)


async def test_death_while_a_request_is_being_taken_reaches_it():
    async with hosting() as (host, engine):
        await host.submit("c", [request("running")])
        engine.admit.clear()
        submitting = asyncio.ensure_future(host.submit("c", [request("arriving")]))
        await until(lambda: "arriving" in engine.arriving)
        engine.die()
        _, heard = await hear(host, "c", last=2)
        engine.admit.set()
        await submitting
    assert {d.request_id for d in heard} == {"running", "arriving"}


async def test_closing_ends_what_is_in_flight_with_an_error():
    async with hosting() as (host, engine):
        await host.submit("c", [request()])
        listening = asyncio.ensure_future(hear(host, "c"))
        await host.close()
        _, heard = await listening
        assert engine.closed
    assert isinstance(heard[-1].error, ReplicaDiedError)


async def test_closing_a_channel_stops_what_its_client_had_running_and_nothing_else():
    async with hosting() as (host, engine):
        await host.submit("gone", [request("a"), request("b")])
        await host.submit("stays", [request("c")])
        await host.close_channel("gone")
        await host.close_channel("never heard of")
        assert engine.open == {"c"}
        assert "gone" not in host._channels


async def test_a_closed_channel_leaves_an_idle_engine_idle():
    engine = WatchedEngine("replica-0", Step)
    async with hosting(engine) as (host, _):
        await host.submit("gone", [request(max_tokens=4000)])
        await host.close_channel("gone")
        await until(lambda: engine.figures().running == 0)
        await until(lambda: not host._owner)


async def test_the_pump_rests_while_nothing_is_in_flight():
    async with hosting() as (host, engine):
        for number in range(2):
            await host.submit("c", [request(f"r{number}")])
            pump = host._pump_task
            engine.say(engine.asked[-1], 1, finish=FinishReason.STOP)
            await until(pump.done)
