"""The simulated engine is a function of its context and behaves like an engine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.unit.inprocess import WAIT_S, until
from workbench.engines.simulated import SimulatedArgs, SimulatedEngine
from workbench.errors import ReplicaDiedError, RequestError
from workbench.types import FinishReason, GenerateRequest


@asynccontextmanager
async def engine(**args):
    made = SimulatedEngine("replica-0", SimulatedArgs(**{"step_s": 0.0, **args}))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def request(prompt=(1, 2, 3), request_id="r", **sampling):
    return GenerateRequest(request_id, list(prompt), sampling, session_id="s")


async def finish(made, *requests):
    """Every delta of these requests, by id, until the last of each."""
    for one in requests:
        await made.add(one)
    deltas = {one.request_id: [] for one in requests}
    async with asyncio.timeout(WAIT_S):
        while not all(found and found[-1].is_last for found in deltas.values()):
            await made.wait(0.01)
            for delta in made.drain():
                deltas[delta.request_id].append(delta)
    return deltas


async def complete(made, *args, **sampling):
    one = request(*args, **sampling)
    deltas = (await finish(made, one))[one.request_id]
    return [token for delta in deltas for token in delta.token_ids], deltas


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


async def test_closing_twice_is_closing_once():
    async with engine() as made:
        await made.add(request(max_tokens=4000))
        await made.close()
