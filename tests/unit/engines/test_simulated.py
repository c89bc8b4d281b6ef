"""The simulated engine is a function of its context and behaves like an engine."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import pickle
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engines.simulated import Fault, FaultKind, SimulatedArgs, SimulatedEngine
from workbench.engines.simulated.tokens import TokenSource
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import ConfigError, ReplicaDiedError, RequestError
from workbench.types import FinishReason, GenerateRequest

WAIT_S = 5.0
"""No wait of a test is longer."""


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


def in_virtual_time(test):
    """Run an async test at once, with durations that are exact."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        run_virtual(test(*args, **kwargs))

    return run


def now():
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def engine(**args):
    made = SimulatedEngine("replica-0", SimulatedArgs(**{"step_s": 0.0, **args}))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def request(prompt=(1, 2, 3), request_id="r", *, priority=0, **sampling):
    return GenerateRequest(request_id, list(prompt), sampling, "s", priority)


async def finish(made, *requests):
    """Every delta of these requests, by id, until the last of each."""
    for one in requests:
        await made.add(one)
    return await collect(made, *(one.request_id for one in requests))


async def collect(made, *request_ids, wait_s=0.01):
    """Every delta of these requests, by id, until the last of each."""
    deltas = {request_id: [] for request_id in request_ids}
    async with asyncio.timeout(10_000 if wait_s > 1 else WAIT_S):
        while not all(found and found[-1].is_last for found in deltas.values()):
            await made.wait(wait_s)
            for delta in made.drain():
                deltas[delta.request_id].append(delta)
    return deltas


def tokens_of(deltas):
    return [token for delta in deltas for token in delta.token_ids]


async def complete(made, *args, **sampling):
    one = request(*args, **sampling)
    deltas = (await finish(made, one))[one.request_id]
    return tokens_of(deltas), deltas


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 999), min_size=1), st.integers(1, 30), st.integers(0, 9), st.integers()
)
def test_a_token_is_a_function_of_the_seeds_and_the_whole_context(prompt, count, seed, own_seed):
    def source(context):
        return TokenSource(
            context, engine_seed=seed, request_seed=own_seed, vocab_size=1000, stop_token=-1
        )

    whole = source(prompt)
    context = list(prompt)
    for _ in range(count):
        text = f"{seed}/{own_seed}/" + ",".join(map(str, context))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        token = whole.next()
        assert token == source(context).next() == int.from_bytes(digest, "big") % 1000
        context.append(token)


async def test_the_same_prompt_gets_the_same_tokens_from_two_engines():
    async with engine() as one, engine() as two:
        first, _ = await complete(one, max_tokens=20)
        second, _ = await complete(two, max_tokens=20)
    assert first == second
    assert len(first) == 20


async def test_seeds_and_prompts_change_the_tokens():
    async with engine() as made, engine(seed=1) as other:
        base, _ = await complete(made, max_tokens=8)
        by_prompt, _ = await complete(made, (1, 2, 4), max_tokens=8)
        by_request, _ = await complete(made, max_tokens=8, seed=5)
        by_engine, _ = await complete(other, max_tokens=8)
    assert len({tuple(t) for t in (base, by_prompt, by_request, by_engine)}) == 4


async def test_a_resumed_prompt_goes_on_as_if_nothing_had_happened():
    async with engine() as made:
        whole, _ = await complete(made, (5, 6), max_tokens=12)
        rest, _ = await complete(made, (5, 6, *whole[:7]), max_tokens=5)
    assert whole[7:] == rest


async def test_requests_in_one_batch_do_not_touch_each_other():
    async with engine() as made:
        alone, _ = await complete(made, (9,), max_tokens=10)
        crowd = [request((i,), request_id=f"r{i}", max_tokens=10) for i in range(5, 12)]
        together = await finish(made, *crowd)
    assert [t for delta in together["r9"] for t in delta.token_ids] == alone


async def test_the_budget_ends_a_generation_with_length():
    async with engine() as made:
        tokens, deltas = await complete(made, max_tokens=3)
    assert len(tokens) == 3
    assert deltas[-1].finish_reason is FinishReason.LENGTH


async def test_the_context_ends_a_generation_with_length():
    async with engine(max_model_len=10) as made:
        tokens, deltas = await complete(made, (1, 2, 3), max_tokens=100)
    assert len(tokens) == 7
    assert deltas[-1].finish_reason is FinishReason.LENGTH


async def test_without_a_budget_the_context_is_the_limit():
    async with engine(max_model_len=40, stop_token=-1) as made:
        tokens, _ = await complete(made, (1, 2, 3), max_tokens=None)
        same, _ = await complete(made, (1, 2, 3))
    assert len(tokens) == len(same) == 37


async def test_the_stop_token_ends_a_generation_and_is_part_of_it():
    async with engine(script=((7, 8),), stop_token=0) as made:
        tokens, deltas = await complete(made, max_tokens=100)
    assert tokens == [7, 8, 0]
    assert deltas[-1].finish_reason is FinishReason.STOP


async def test_scripts_are_given_in_turn_and_from_the_start_again():
    async with engine(script=((7,), (8,))) as made:
        said = [(await complete(made, max_tokens=9))[0][0] for _ in range(3)]
    assert said == [7, 8, 7]


async def test_log_probs_are_aligned_and_spans_cover_the_tokens():
    async with engine() as made:
        tokens, deltas = await complete(made, max_tokens=5)
    log_probs = [p for delta in deltas for p in delta.log_probs]
    assert len(log_probs) == len(tokens)
    assert all(p <= 0 for p in log_probs)
    (span,) = deltas[-1].version_spans
    assert (span.start, span.end) == (0, 5)


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [((), "empty"), (range(10), "10 tokens"), ((1, 1000), "1000"), ((-1,), "-1")],
)
async def test_what_a_real_engine_would_refuse_is_refused_by_field(prompt, problem):
    async with engine(max_model_len=10, vocab_size=1000) as made:
        with pytest.raises(RequestError, match=problem) as refused:
            await made.add(request(prompt))
        assert refused.value.field == "prompt_ids"
        assert made.figures().running == 0


async def test_a_prompt_that_is_too_long_is_told_what_would_fit():
    async with engine(max_model_len=10) as made:
        with pytest.raises(RequestError, match=r"allowed: < 10 tokens"):
            await made.add(request(range(12)))


async def test_an_abort_ends_one_request_with_the_tokens_so_far():
    async with engine(stop_token=-1) as made:
        await made.add(request(request_id="doomed", max_tokens=4000))
        await made.add(request(request_id="other", max_tokens=4000))
        await until(lambda: made.figures().generation_tokens > 10)
        await made.abort(["doomed", "never heard of"])
        deltas = {delta.request_id: delta for delta in made.drain()}
    assert deltas["doomed"].finish_reason is FinishReason.ABORT
    assert deltas["doomed"].token_ids
    assert deltas["other"].finish_reason is None


async def test_an_abort_before_the_first_token_has_no_version_span():
    async with engine(step_s=60.0) as made:
        await made.add(request())
        await made.abort(["r"])
        (delta,) = made.drain()
    assert delta.finish_reason is FinishReason.ABORT
    assert (delta.token_ids, delta.version_spans) == ([], ())


async def test_death_is_told_by_drain_and_by_add():
    async with engine(die_after_tokens=5, stop_token=-1) as made:
        await made.add(request(max_tokens=100))
        await until(lambda: made.figures().generation_tokens >= 5)
        with pytest.raises(ReplicaDiedError, match="replica-0"):
            made.drain()
        with pytest.raises(ReplicaDiedError):
            await made.add(request(request_id="late"))


async def test_figures_count_what_went_through():
    async with engine(stop_token=-1) as made:
        await finish(made, request(max_tokens=4), request(request_id="q", max_tokens=6))
        figures = made.figures()
    assert (figures.running, figures.finished) == (0, 2)
    assert (figures.prompt_tokens, figures.generation_tokens) == (6, 10)


async def test_blocks_that_made_room_are_counted():
    async with engine(block_tokens=4, kv_blocks=3) as made:
        for first in (1, 11):
            one = request(range(first, first + 8), f"from-{first}", max_tokens=1)
            await made.add(one)
            await collect(made, one.request_id)
        assert made.figures().evicted_blocks == 1
    async with engine() as boundless:
        assert boundless.figures().evicted_blocks == 0


async def test_closing_twice_is_closing_once():
    async with engine() as made:
        await made.add(request(max_tokens=4000))
        await made.close()


async def test_a_request_that_is_in_the_engine_is_not_taken_twice():
    async with engine() as made:
        await made.add(request())
        with pytest.raises(RequestError, match="request_id"):
            await made.add(request())
        assert made.figures().waiting == 1


async def test_a_priority_that_cannot_be_compared_is_refused():
    async with engine() as made:
        with pytest.raises(RequestError, match="priority"):
            await made.add(request(priority="high"))


async def test_what_the_kv_cache_cannot_hold_is_refused_and_what_it_can_ends_with_length():
    async with engine(block_tokens=4, kv_blocks=3, stop_token=-1) as made:
        limits = await made.start()
        assert (limits.max_model_len, limits.kv_cache_tokens) == (12, 12)
        with pytest.raises(RequestError, match=r"12 tokens \(allowed: < 12 tokens\)"):
            await made.add(request(range(12)))
        tokens, deltas = await complete(made, range(11), max_tokens=50)
    assert len(tokens) == 1
    assert deltas[-1].finish_reason is FinishReason.LENGTH


async def test_without_a_kv_limit_the_limits_say_so():
    async with engine() as made:
        limits = await made.start()
    assert (limits.max_model_len, limits.kv_cache_tokens) == (4096, None)


def test_arguments_are_plain_values():
    from_json = SimulatedArgs(faults=({"kind": "slow", "after_tokens": 3, "factor": 2.0},))
    assert from_json.faults == (Fault(FaultKind.SLOW, 3, 2.0),)
    assert pickle.loads(pickle.dumps(from_json)) == from_json


@pytest.mark.parametrize("name", ["block_tokens", "kv_blocks", "max_num_seqs"])
def test_an_engine_without_room_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        SimulatedArgs(**{name: 0})


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="melt"):
        Fault("melt")


async def test_a_step_loop_that_breaks_is_told_by_drain(monkeypatch):
    async with engine() as made:
        monkeypatch.setattr(made._scheduler, "schedule", lambda admit: 1 / 0)
        await made.add(request())
        await made.wait(WAIT_S)
        with pytest.raises(ZeroDivisionError):
            made.drain()
        with pytest.raises(ReplicaDiedError, match="ZeroDivisionError"):
            await made.add(request(request_id="late"))
