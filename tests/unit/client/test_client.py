"""The client loses no lease, no token and no neighbour, whatever happens to a call."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from tests.unit.inprocess import (
    PROMPT,
    WAIT_S,
    Step,
    assert_aligned,
    begun,
    generate,
    manual_pool,
    simulated_pool,
    undisturbed,
    until,
)
from workbench.client import LLMServerClient
from workbench.errors import DeadlineError, PoolClosedError, RequestError
from workbench.types import FinishReason, ReplicaState, VersionSpan

# -- the ordinary way ------------------------------------------------------------------------


async def test_a_call_returns_what_the_engine_sampled():
    async with simulated_pool() as pool:
        output = await generate(pool.client(), max_tokens=20)
        (request,) = pool.engines[0].asked
        assert output.token_ids == pool.engines[0].said[request.request_id]
    assert output.finish_reason is FinishReason.LENGTH
    assert (output.replica_id, output.attempts) == ("replica-0", 1)
    assert_aligned(output)


async def test_many_calls_at_once_keep_their_tokens_apart():
    async with simulated_pool(Step, Step) as pool:
        client = pool.client()
        outputs = await asyncio.gather(
            *(generate(client, f"s{i}", prompt=[i + 1], max_tokens=12) for i in range(40))
        )
        loads = [load.acquired for load in pool.balancer.snapshot().replicas]
    assert loads == [20, 20]
    alone = [await undisturbed([i + 1], max_tokens=12) for i in (0, 17, 39)]
    assert [outputs[i].token_ids for i in (0, 17, 39)] == [one.token_ids for one in alone]


async def test_the_turns_of_a_session_go_to_one_replica():
    async with simulated_pool(Step, Step, Step) as pool:
        client = pool.client()
        homes = {(await generate(client)).replica_id for _ in range(6)}
        assert len(homes) == 1
        await until(lambda: pool.balancer.snapshot().sticky == 5)


async def test_requests_that_are_opened_together_travel_in_one_call():
    async with manual_pool() as pool:
        link = pool.balancer.handle("replica-0")
        calls, submit = [], link.submit

        async def counted(channel_id, requests):
            calls.append(len(requests))
            return await submit(channel_id, requests)

        link.submit = counted
        client = pool.client()
        await asyncio.gather(*(_answered(pool, client, f"s{i}", 10) for i in range(10)))
    assert sum(calls) == 10
    assert len(calls) < 10


async def _answered(pool, client, session, expected):
    """A call that the test answers once ``expected`` of them are open."""
    call = asyncio.ensure_future(generate(client, session))
    (engine,) = pool.engines
    await until(lambda: len(engine.asked) == expected)
    for request in engine.asked:
        if request.session_id == session:
            engine.say(request, 5, finish=FinishReason.STOP)
    return await call


async def test_a_stream_gives_the_tokens_with_their_versions_as_they_come():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        stream = pool.client().stream("s", prompt_ids=PROMPT, sampling_params={})
        first = asyncio.ensure_future(anext(stream))
        await until(lambda: engine.asked)
        engine.say(engine.asked[0], 5, version=1)
        assert ((await first).token_ids, first.result().version) == ([5], 1)
        engine.say(engine.asked[0], 6, version=2, finish=FinishReason.STOP)
        rest = [delta async for delta in stream]
    assert [(d.token_ids, d.version) for d in rest] == [([6], 2)]


async def test_version_spans_change_where_the_engines_do():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        call = asyncio.ensure_future(generate(pool.client()))
        await until(lambda: engine.asked)
        engine.say(engine.asked[0], 5, 6, version=0)
        engine.say(engine.asked[0], 7, version=1, finish=FinishReason.STOP)
        output = await call
    assert output.version_spans == (VersionSpan(0, 0, 2), VersionSpan(1, 2, 3))


async def test_ending_a_session_forgets_its_pin():
    async with simulated_pool(Step, Step) as pool:
        client = pool.client()
        await generate(client)
        client.end_session("s")
        await until(lambda: pool.balancer.pins() == {})


# -- cancelling ------------------------------------------------------------------------------


async def asking(pool, **options):
    """A call whose question the balancer has, and has not answered."""
    client = await pool.greeted()
    pool.port.open_gate.clear()
    call = asyncio.ensure_future(generate(client, **options))
    await until(lambda: pool.port.asked == 2)
    return call


async def cancel(call):
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_cancelling_while_acquiring_leaks_no_lease():
    async with simulated_pool() as pool:
        await cancel(await asking(pool))
        pool.port.open_gate.set()  # the balancer grants it all the same
        await until(lambda: pool.balancer.snapshot().acquired == 2)
        await until(lambda: pool.in_flight == 0)
        assert len(pool.engines[0].asked) == 1


async def test_cancelling_at_the_moment_of_the_grant_leaks_no_lease():
    async with simulated_pool() as pool:
        call = await asking(pool)
        pool.port.open_gate.set()
        while not pool.in_flight:
            await asyncio.sleep(0)
        await cancel(call)
        await until(lambda: pool.in_flight == 0)


@pytest.mark.parametrize("steps", range(8))
async def test_cancelling_some_steps_after_the_grant_leaks_no_lease(steps):
    async with simulated_pool() as pool:
        call = await asking(pool)
        pool.port.open_gate.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        await cancel(call)
        await until(lambda: pool.balancer.snapshot().acquired == 2 and pool.in_flight == 0)
        await until(lambda: pool.engines[0].figures().running == 0)


async def test_a_turn_that_cannot_be_granted_leaves_the_line_when_its_caller_does():
    async with simulated_pool() as pool:
        call = await asking(pool)
        await cancel(call)
        pool.balancer.set_state("replica-0", ReplicaState.UNHEALTHY)
        pool.port.open_gate.set()
        await until(lambda: any(report.closed for report in pool.port.reports[-1:]))
        await until(lambda: pool.balancer.snapshot().queued == 0)


async def test_cancelling_one_call_stops_it_in_the_engine_and_leaves_its_neighbours_alone():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        client = pool.client()
        doomed = asyncio.ensure_future(generate(client, "doomed"))
        other = asyncio.ensure_future(generate(client, "other"))
        await until(lambda: len(engine.asked) == 2)
        requests = {request.session_id: request for request in engine.asked}
        for request in requests.values():
            engine.say(request, 5)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        await until(lambda: engine.open == {requests["other"].request_id})
        assert engine.aborted == [requests["doomed"].request_id]
        engine.say(requests["other"], 6, finish=FinishReason.STOP)
        assert (await other).token_ids == [5, 6]
        await until(lambda: pool.in_flight == 0)
        served = [turn.served for report in pool.port.reports for turn in report.closed]
        assert sorted(served) == [False, True], "a cancelled call proves nothing"


async def test_cancelling_while_the_engine_takes_the_request_stops_it_there():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        engine.admit.clear()
        client = pool.client()
        first = asyncio.ensure_future(generate(client, "first"))
        doomed = asyncio.ensure_future(generate(client, "doomed"))
        await until(lambda: engine.arriving)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        engine.admit.set()
        await until(lambda: any(r.session_id == "first" for r in engine.asked))
        request = next(r for r in engine.asked if r.session_id == "first")
        await until(lambda: engine.open == {request.request_id})
        engine.say(request, 5, finish=FinishReason.STOP)
        assert (await first).token_ids == [5]


async def test_a_call_that_is_cancelled_before_it_was_sent_never_reaches_the_engine():
    async with simulated_pool() as pool:
        client = pool.client()
        await generate(client)
        call = asyncio.ensure_future(generate(client))
        await begun(client)
        await cancel(call)
        await until(lambda: pool.engines[0].figures().running == 0)
        assert len(pool.engines[0].asked) - 1 <= len(pool.engines[0].aborted)


async def test_leaving_a_stream_early_stops_it_in_the_engine():
    async with simulated_pool() as pool:
        async for _ in pool.client().stream(
            "s", prompt_ids=PROMPT, sampling_params={"max_tokens": 4000}
        ):
            break
        (engine,) = pool.engines
        await until(lambda: engine.aborted == [engine.asked[0].request_id])
        await until(lambda: pool.in_flight == 0)
        await until(lambda: engine.figures().running == 0)


async def test_closing_a_stream_stops_it_in_the_engine():
    async with simulated_pool() as pool:
        stream = pool.client().stream("s", prompt_ids=PROMPT, sampling_params={"max_tokens": 4000})
        await anext(stream)
        await stream.aclose()
        await until(lambda: pool.in_flight == 0)
        (engine,) = pool.engines
        await until(lambda: engine.figures().running == 0)
        assert engine.aborted == [engine.asked[0].request_id]


async def test_a_deadline_ends_the_call_and_stops_it_in_the_engine():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        with pytest.raises(DeadlineError, match=r"deadline_s=0.05"):
            await generate(pool.client(), deadline_s=0.05)
        await until(lambda: pool.in_flight == 0)
        await until(lambda: engine.aborted == [engine.asked[0].request_id])


async def test_a_deadline_holds_while_acquiring_too():
    async with simulated_pool() as pool:
        call = await asking(pool, deadline_s=0.02)
        with pytest.raises(DeadlineError):
            await call
        pool.port.open_gate.set()
        await until(lambda: pool.balancer.snapshot().acquired == 2)


async def test_a_deadline_holds_before_the_balancer_has_answered_at_all():
    async with simulated_pool() as pool:
        pool.port.open_gate.clear()
        with pytest.raises(DeadlineError):
            await generate(pool.client(), deadline_s=0.02)
        pool.port.open_gate.set()


async def test_cancelling_a_call_with_a_deadline_is_no_deadline_error():
    async with manual_pool() as pool:
        call = asyncio.ensure_future(generate(pool.client(), deadline_s=60.0))
        await until(lambda: pool.engines[0].asked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [[], [1] * 5000, [999_999]])
async def test_the_engines_refusal_reaches_the_caller_without_a_retry(prompt):
    async with simulated_pool(Step, Step) as pool:
        client = pool.client()
        with pytest.raises(RequestError) as refused:
            await generate(client, prompt=prompt)
        assert refused.value.field == "prompt_ids"
        await until(lambda: pool.in_flight == 0)
        assert pool.balancer.snapshot().acquired == 1
        assert pool.balancer.get_status()["active_servers"] == 2
        assert (await generate(client)).attempts == 1


async def test_a_refusal_leaves_those_that_travel_with_it_alone():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        engine.refusals["bad"] = RequestError("prompt_ids", "no")
        client = pool.client()
        calls = [asyncio.ensure_future(generate(client, s)) for s in ("a", "bad", "b")]
        await until(lambda: len(engine.asked) == 2)
        for request in engine.asked:
            engine.say(request, 5, finish=FinishReason.STOP)
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[1], RequestError)
    assert [answers[0].token_ids, answers[2].token_ids] == [[5], [5]]


# -- life ------------------------------------------------------------------------------------


async def test_closing_the_client_ends_calls_in_flight_with_an_error():
    async with manual_pool() as pool:
        client = pool.client()
        call = asyncio.ensure_future(generate(client))
        await until(lambda: pool.engines[0].asked)
        await client.aclose()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(PoolClosedError):
                await call
        await until(lambda: not pool.engines[0].open)


async def test_closing_the_client_while_a_request_is_on_its_way_ends_it_too():
    async with manual_pool() as pool:
        pool.engines[0].admit.clear()
        client = pool.client()
        call = asyncio.ensure_future(generate(client))
        await until(lambda: pool.engines[0].arriving)
        await client.aclose()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(PoolClosedError):
                await call
        pool.engines[0].admit.set()
        await until(lambda: not pool.engines[0].open)


async def test_a_closed_client_can_be_used_again():
    async with simulated_pool() as pool:
        client = pool.client()
        first = await generate(client)
        await client.aclose()
        await client.aclose()
        again = await asyncio.gather(*(generate(client, f"s{i}") for i in range(8)))
    assert {tuple(output.token_ids) for output in again} == {tuple(first.token_ids)}


async def test_leaving_the_context_closes():
    async with simulated_pool() as pool:
        before = asyncio.all_tasks()
        async with pool.client() as client:
            await generate(client)
        await until(lambda: asyncio.all_tasks() <= before)


def test_a_client_works_on_one_loop_after_another():
    client = LLMServerClient(balancer=None)

    async def once():
        async with simulated_pool() as pool:
            client._balancer = pool.port
            return (await generate(client)).token_ids

    assert asyncio.run(once()) == asyncio.run(once())
    asyncio.run(client.aclose())


def test_a_client_in_use_on_one_loop_refuses_another():
    async def play():
        async with manual_pool() as pool:
            client = pool.client()
            call = asyncio.ensure_future(generate(client))
            await until(lambda: pool.engines[0].asked)
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, generate(client, "t"))
            call.cancel()
            await asyncio.wait({call})

    asyncio.run(play())


def test_a_pickled_client_starts_afresh_under_an_owner_of_its_own():
    client = LLMServerClient("any picklable balancer")
    copy = pickle.loads(pickle.dumps(client))
    assert copy._balancer == "any picklable balancer"
    assert copy.owner == "", "it has one once it is used"
