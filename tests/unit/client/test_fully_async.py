"""The client that goes on after interruptions: one output, one budget, and an end to patience."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inprocess import (
    PROMPT,
    WAIT_S,
    answered,
    assert_aligned,
    generate,
    manual_pool,
    noted_pauses,
    opened,
    until,
    virtually,
)
from workbench.client import FullyAsyncLLMServerClient
from workbench.client.client import MAX_BACKOFF_S
from workbench.client.fully_async import MAX_STALLED_RESUMES
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import NoProgressError
from workbench.types import FinishReason, VersionSpan


async def interrupted(pool, client, *attempts, budget=8):
    """The output of a call whose attempts bring these (ids, version), all but the last aborted."""
    (engine,) = pool.engines
    call = asyncio.ensure_future(generate(client, max_tokens=budget))
    for number, (ids, version) in enumerate(attempts):
        await until(lambda number=number: len(engine.asked) > number)
        last = number == len(attempts) - 1
        finish = FinishReason.STOP if last else FinishReason.ABORT
        engine.say(engine.asked[number], *ids, version=version, finish=finish)
    return await call


@virtually
async def test_an_interrupted_generation_is_one_output():
    async with manual_pool() as pool:
        client = pool.client(FullyAsyncLLMServerClient)
        output = await interrupted(pool, client, ([5, 6], 0), ([7], 1), ([8, 9], 3))
        requests = pool.engines[0].asked
    assert output.token_ids == [5, 6, 7, 8, 9]
    assert output.log_probs == [-0.5 * token for token in output.token_ids]
    assert output.version_spans == (
        VersionSpan(0, 0, 2),
        VersionSpan(1, 2, 3),
        VersionSpan(3, 3, 5),
    )
    assert output.extra_fields["min_global_steps"] == 0, "version 0 is a version"
    assert output.extra_fields["max_global_steps"] == 3
    assert (output.finish_reason, output.attempts) == (FinishReason.STOP, 3)
    assert [r.prompt_ids for r in requests] == [PROMPT, [*PROMPT, 5, 6], [*PROMPT, 5, 6, 7]]
    assert [r.sampling["max_tokens"] for r in requests] == [8, 6, 5]
    assert {r.session_id for r in requests} == {"s"}


@virtually
async def test_a_stream_goes_on_after_an_interruption():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        client = pool.client(FullyAsyncLLMServerClient)
        stream = client.stream("s", prompt_ids=PROMPT, sampling_params={"max_tokens": 4})
        reading = asyncio.ensure_future(_all(stream))
        await until(lambda: engine.asked)
        engine.say(engine.asked[0], 5, version=0, finish=FinishReason.ABORT)
        await until(lambda: len(engine.asked) == 2)
        engine.say(engine.asked[1], 6, version=1, finish=FinishReason.STOP)
        deltas = await reading
    assert [(delta.token_ids, delta.version) for delta in deltas] == [([5], 0), ([6], 1)]


async def _all(stream):
    return [delta async for delta in stream]


@settings(max_examples=50, deadline=None)
@given(budget=st.integers(1, 12), sizes=st.lists(st.integers(0, 5), max_size=6))
def test_the_budget_holds_over_all_interruptions(budget, sizes):
    async def play():
        async with manual_pool() as pool:
            (engine,) = pool.engines
            client = pool.client(FullyAsyncLLMServerClient)
            call = asyncio.ensure_future(generate(client, max_tokens=budget))
            left = budget
            for number, size in enumerate([*sizes, budget]):
                await until(lambda number=number: len(engine.asked) > number or call.done())
                if call.done():
                    break
                request = engine.asked[number]
                assert request.sampling["max_tokens"] == left
                ids = list(range(1, min(size, left) + 1))
                left -= len(ids)
                over = left == 0 and number % 2  # the last word may be an abort too
                engine.say(
                    request, *ids, finish=FinishReason.LENGTH if over else FinishReason.ABORT
                )
            async with asyncio.timeout(WAIT_S):
                return await call

    output = run_virtual(play())
    assert len(output.token_ids) == budget
    assert output.finish_reason is FinishReason.LENGTH
    assert_aligned(output)


@virtually
async def test_aborts_without_progress_back_off_and_stop_at_a_cap(monkeypatch):
    pauses = noted_pauses(monkeypatch)
    async with manual_pool() as pool:
        (engine,) = pool.engines
        client = pool.client(FullyAsyncLLMServerClient, backoff_s=0.1)
        call = asyncio.ensure_future(generate(client))
        for number in range(MAX_STALLED_RESUMES):
            await until(lambda number=number: len(engine.asked) > number)
            engine.say(engine.asked[number], finish=FinishReason.ABORT)
        with pytest.raises(NoProgressError, match=f"{MAX_STALLED_RESUMES} attempts in a row"):
            await call
        assert len(engine.asked) == MAX_STALLED_RESUMES
    assert len(pauses) == MAX_STALLED_RESUMES - 1
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (0.1, 0.2, MAX_BACKOFF_S)


@virtually
async def test_progress_starts_the_count_of_fruitless_aborts_anew():
    async with manual_pool() as pool:
        client = pool.client(FullyAsyncLLMServerClient, max_stalled_attempts=2)
        output = await interrupted(pool, client, ([], 0), ([5], 0), ([], 1), ([6], 1), ([7], 1))
    assert output.token_ids == [5, 6, 7]


@virtually
async def test_without_partial_rollouts_the_caller_gets_what_there_is():
    async with manual_pool() as pool:
        client = pool.client(FullyAsyncLLMServerClient, partial_rollout=False)
        call, request = await opened(pool, client)
        pool.engines[0].say(request, 5, 6, finish=FinishReason.ABORT)
        output = await call
        assert len(pool.engines[0].asked) == 1
    assert (output.token_ids, output.finish_reason) == ([5, 6], FinishReason.ABORT)
    assert_aligned(output)


@virtually
async def test_the_plain_client_is_given_what_there_is_too():
    async with manual_pool() as pool:
        call, request = await opened(pool, pool.client())
        pool.engines[0].say(request, finish=FinishReason.ABORT)
        output = await call
    assert (output.token_ids, output.finish_reason) == ([], FinishReason.ABORT)


@virtually
async def test_cancelling_an_interruptible_call_is_no_interruption():
    async with manual_pool() as pool:
        call, request = await opened(pool, pool.client(FullyAsyncLLMServerClient))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: pool.engines[0].aborted == [request.request_id])
        await until(lambda: pool.in_flight == 0)
        assert len(pool.engines[0].asked) == 1


@virtually
async def test_a_death_between_interruptions_is_no_end():
    async with manual_pool(2) as pool:
        pool.pin("s", 0)
        call, request = await opened(pool, pool.client(FullyAsyncLLMServerClient))
        pool.engines[0].say(request, 5, finish=FinishReason.ABORT)
        await until(lambda: len(pool.engines[0].asked) == 2)
        pool.engines[0].die()
        await until(lambda: pool.engines[1].asked)
        assert pool.engines[1].asked[0].prompt_ids == [*PROMPT, 5]
        output = await answered(pool, call, pool.engines[1].asked[0], 6, engine=1)
    assert (output.token_ids, output.attempts) == ([5, 6], 3)


# -- subclasses and copies -------------------------------------------------------------------


class Labelled(FullyAsyncLLMServerClient):
    """As a user of the library writes one."""

    def __init__(self, balancer, *, label="", **settings):
        super().__init__(balancer, **settings)
        self.label = label


@virtually
async def test_a_subclass_is_given_its_own_settings_and_the_pools():
    async with manual_pool() as pool:
        client = pool.client(Labelled, label="mine", deterministic=True, partial_rollout=False)
        await answered(pool, *await opened(pool, client))
        assert client.label == "mine"
        assert "seed" in pool.engines[0].asked[0].sampling


def test_a_copy_keeps_its_settings_and_is_somebody_else():
    client = Labelled(
        "any picklable balancer",
        label="mine",
        deterministic=True,
        partial_rollout=False,
        max_stalled_attempts=7,
        backoff_s=0.5,
    )
    copy = pickle.loads(pickle.dumps(client))
    assert vars(copy) == vars(client)
    assert copy.label == "mine"


@virtually
async def test_a_client_can_be_sent_away_while_it_is_in_use():
    async with manual_pool() as pool:
        client = pool.client(Labelled, label="mine")
        call, request = await opened(pool, client)
        client._balancer, kept = "any picklable balancer", client._balancer
        copy = pickle.loads(pickle.dumps(client))
        client._balancer = kept
        assert (copy.label, copy.owner) == ("mine", "")
        assert client.owner
        await answered(pool, call, request)
