"""New weights end no call: what was stopped by them, and by nobody's wish, goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.inprocess import (
    PROMPT,
    ManualEngine,
    Step,
    assert_aligned,
    generate,
    noted_pauses,
    opened,
    pool_of,
    simulated_pool,
    undisturbed,
    until,
    virtually,
)
from workbench.client import FullyAsyncLLMServerClient
from workbench.client.client import MAX_STALLED_ATTEMPTS
from workbench.client.generation import Generation
from workbench.errors import NoProgressError, ReplicaLostError
from workbench.types import FinishReason, TokenDelta, VersionSpan

Slow = replace(Step, step_s=0.01, load_s=0.05)


class Swapping(ManualEngine):
    """Marks what it says as a host does while weights change."""

    def drain(self):
        ended = FinishReason.ABORT
        return [replace(d, interrupted=d.finish_reason is ended) for d in super().drain()]


def swapping_pool():
    return pool_of([Swapping()])


async def stopped(pool, client, *attempts, budget=8):
    """The call whose attempts bring these ids, each ended by new weights."""
    (engine,) = pool.engines
    call = asyncio.ensure_future(generate(client, max_tokens=budget))
    for number, ids in enumerate(attempts):
        await until(lambda number=number: len(engine.asked) > number)
        engine.say(engine.asked[number], *ids, version=number, finish=FinishReason.ABORT)
    return call


@virtually
async def test_a_call_goes_on_from_what_was_delivered_with_what_is_left_of_its_budget():
    async with swapping_pool() as pool:
        call = await stopped(pool, pool.client(), [5, 6], [7], budget=4)
        await until(lambda: len(pool.engines[0].asked) == 3)
        pool.engines[0].say(pool.engines[0].asked[2], 8, version=2, finish=FinishReason.LENGTH)
        output = await call
        requests = pool.engines[0].asked
    assert (output.token_ids, output.finish_reason) == ([5, 6, 7, 8], FinishReason.LENGTH)
    assert output.version_spans == (
        VersionSpan(0, 0, 2),
        VersionSpan(1, 2, 3),
        VersionSpan(2, 3, 4),
    )
    assert [r.prompt_ids for r in requests] == [PROMPT, [*PROMPT, 5, 6], [*PROMPT, 5, 6, 7]]
    assert [r.sampling["max_tokens"] for r in requests] == [4, 2, 1]
    assert (output.attempts, output.stop_reason) == (3, "completed")


@virtually
async def test_a_call_that_had_all_its_tokens_by_then_is_complete():
    async with swapping_pool() as pool:
        output = await (await stopped(pool, pool.client(), [5, 6], budget=2))
        assert len(pool.engines[0].asked) == 1
    assert (output.token_ids, output.finish_reason) == ([5, 6], FinishReason.LENGTH)


@virtually
async def test_one_that_waited_in_the_engine_over_many_updates_waits_on(monkeypatch):
    """That nothing came meanwhile is no fault of a replica."""
    pauses = noted_pauses(monkeypatch)
    many = 5 * MAX_STALLED_ATTEMPTS
    async with swapping_pool() as pool:
        call = await stopped(pool, pool.client(), *[[]] * many)
        await until(lambda: len(pool.engines[0].asked) == many + 1)
        pool.engines[0].say(pool.engines[0].asked[-1], 5, finish=FinishReason.STOP)
        output = await call
    assert (output.token_ids, output.attempts, pauses) == ([5], many + 1, [])


@virtually
async def test_failures_between_updates_are_counted_still(monkeypatch):
    noted_pauses(monkeypatch)
    async with pool_of([Swapping()], max_failures=1000) as pool:
        (engine,) = pool.engines
        call = await stopped(pool, pool.client(), [])
        await until(lambda: len(engine.asked) == 2)
        engine.refusals["s"] = ReplicaLostError("out of breath")
        engine.say(engine.asked[1], finish=FinishReason.ABORT)
        with pytest.raises(NoProgressError, match=f"{MAX_STALLED_ATTEMPTS} attempts in a row"):
            await call
        assert len(engine.arriving) == 2 + MAX_STALLED_ATTEMPTS


@virtually
async def test_who_leaves_going_on_to_its_caller_is_given_what_there_is():
    async with swapping_pool() as pool:
        client = pool.client(FullyAsyncLLMServerClient, partial_rollout=False)
        output = await (await stopped(pool, client, [5, 6]))
        assert len(pool.engines[0].asked) == 1
    assert (output.token_ids, output.finish_reason) == ([5, 6], FinishReason.ABORT)


@virtually
async def test_a_cancelled_call_is_not_resumed():
    async with swapping_pool() as pool:
        call, request = await opened(pool, pool.client())
        pool.engines[0].say(request, 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not pool.hosts[0]._owner)
        assert len(pool.engines[0].asked) == 1


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
@virtually
async def test_weights_that_change_under_a_call_change_none_of_its_tokens(mode):
    async with simulated_pool(Slow) as pool:
        call = asyncio.ensure_future(generate(pool.client(), max_tokens=10))
        await asyncio.sleep(0.055)
        await pool.hosts[0].control.update("w", 1, mode)
        output = await call
        undisturbed_output = await undisturbed(args=Slow, max_tokens=10)
    assert output.token_ids == undisturbed_output.token_ids
    assert output.finish_reason is FinishReason.LENGTH
    assert [span.version for span in output.version_spans] == ([0] if mode == "wait" else [0, 1])
    assert output.attempts == (2 if mode == "abort" else 1)


@virtually
async def test_the_calls_of_a_replica_that_does_not_take_its_weights_go_on_elsewhere():
    load = ({"kind": "load"},)
    async with simulated_pool(replace(Slow, faults=load), Slow) as pool:
        pool.pin("s", 0)
        call = asyncio.ensure_future(generate(pool.client(), max_tokens=10))
        await asyncio.sleep(0.055)
        assert pool.engines[0].asked
        with pytest.raises(RuntimeError, match="broken weights"):
            await pool.hosts[0].control.update("w", 1)
        output = await call
    assert (output.replica_id, output.attempts) == ("replica-1", 2)
    assert output.token_ids == (await undisturbed(args=Slow, max_tokens=10)).token_ids


@given(
    budget=st.one_of(st.none(), st.integers(1, 12)),
    deltas=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=8),
)
def test_a_generation_is_over_when_its_budget_is_and_never_by_an_interruption(budget, deltas):
    generation = Generation("s", PROMPT, {"max_tokens": budget})
    for version, (size, ends) in enumerate(deltas):
        request = generation.begin_attempt("replica-0")
        left = request.sampling["max_tokens"]
        ids = list(range(size if left is None else min(size, left)))
        finish = FinishReason.ABORT if ends else None
        generation.add(
            TokenDelta(request.request_id, ids, [0.0] * len(ids), version, finish, interrupted=ends)
        )
        if generation.interrupted:
            generation.resume()
        if generation.finished:
            assert generation.num_tokens == budget
            assert generation.output().finish_reason is FinishReason.LENGTH
            assert_aligned(generation.output())
            break
    else:
        assert budget is None or generation.num_tokens < budget
