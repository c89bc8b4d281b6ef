"""Tokens in, tokens out on real replicas."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from workbench.errors import DeadlineError, RequestError

if TYPE_CHECKING:
    from workbench import Workbench
    from workbench.client import LLMServerClient

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

GREEDY = {"temperature": 0.0, "max_tokens": 24}


def in_flight(bench: Workbench) -> int:
    routing = bench.snapshot().routing
    assert routing is not None
    return routing.in_flight


async def until_idle(bench: Workbench) -> None:
    """Releases travel without being waited for, so the books are level a moment later."""
    async with asyncio.timeout(10):
        while True:
            pool = await asyncio.to_thread(bench.snapshot)
            running = [r.engine.running for r in pool.replicas if r.engine]
            assert pool.routing is not None
            if not pool.routing.in_flight and not any(running):
                return
            await asyncio.sleep(0.02)


def prompt_ids(bench: Workbench, text: str) -> list[int]:
    return bench.generate(text, max_tokens=1).prompt_ids


@pytest.fixture
async def client(bench: Workbench) -> Any:
    async with bench.client() as made:
        yield made


def test_the_model_answers_a_question(bench: Workbench) -> None:
    reply = bench.generate("What is the capital of France? Answer in one sentence.", temperature=0)
    assert "Paris" in str(reply)
    assert len(reply.output.token_ids) == len(reply.output.log_probs)


async def test_an_awaited_answer_leaves_the_callers_loop_running(bench: Workbench) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.01)

    beating = asyncio.create_task(beat())
    reply = await bench.agenerate("Name a colour.", max_tokens=32, ignore_eos=True)
    beating.cancel()
    assert len(reply.output.token_ids) == 32
    assert beats > 5


async def test_greedy_tokens_are_those_of_transformers(
    bench: Workbench, client: LLMServerClient
) -> None:
    prompt = await asyncio.to_thread(prompt_ids, bench, "Name three fruits.")
    ours = await client.generate("fruits", prompt_ids=prompt, sampling_params=GREEDY)
    ids, log_probs = await asyncio.to_thread(greedy_by_transformers, bench, prompt, 24)
    assert ours.token_ids == ids[: len(ours.token_ids)]
    assert ours.log_probs == pytest.approx(log_probs[: len(ours.log_probs)], abs=1e-3)


def greedy_by_transformers(
    bench: Workbench, prompt: list[int], tokens: int
) -> tuple[list[int], list[float]]:
    import torch
    from transformers import AutoModelForCausalLM

    from workbench.models import resolve_model

    model = AutoModelForCausalLM.from_pretrained(
        resolve_model(bench.config.model), dtype=torch.float32
    )
    ids = list(prompt)
    log_probs = []
    with torch.no_grad():
        for _ in range(tokens):
            scores = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            ids.append(int(scores.argmax()))
            log_probs.append(float(scores.max()))
    return ids[len(prompt) :], log_probs


async def test_a_session_stays_on_its_replica_and_finds_its_cache(
    bench: Workbench, client: LLMServerClient
) -> None:
    prompt = await asyncio.to_thread(prompt_ids, bench, "Tell me a story. " * 20)
    first = await client.generate("story", prompt_ids=prompt, sampling_params=GREEDY)
    second = await client.generate(
        "story", prompt_ids=prompt + first.token_ids, sampling_params=GREEDY
    )
    assert second.replica_id == first.replica_id
    assert second.num_cached_tokens is not None
    assert second.num_cached_tokens >= 64


async def test_new_sessions_spread_over_idle_replicas(
    bench: Workbench, client: LLMServerClient
) -> None:
    await until_idle(bench)
    prompt = await asyncio.to_thread(prompt_ids, bench, "Hello.")
    outputs = await asyncio.gather(
        *(
            client.generate(f"spread-{n}", prompt_ids=prompt, sampling_params=GREEDY)
            for n in range(8)
        )
    )
    counts = Counter(output.replica_id for output in outputs)
    assert min(counts["replica-0"], counts["replica-1"]) >= 3


async def test_streamed_tokens_arrive_while_the_rest_is_sampled(
    bench: Workbench, client: LLMServerClient
) -> None:
    await until_idle(bench)
    deltas, running = [], []
    async for delta in client.stream(
        "stream", prompt_ids=[1, 2, 3], sampling_params={"max_tokens": 64, "ignore_eos": True}
    ):
        deltas.append(delta)
        if len(deltas) == 1:
            running = [r.engine.running for r in await _replicas(bench)]
    assert sum(running) == 1
    assert sum(len(delta.token_ids) for delta in deltas) == 64
    assert len(deltas) > 3
    assert [delta.is_last for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].version_spans[-1].end == 64


@pytest.mark.parametrize(
    ("prompt", "sampling", "field"),
    [
        ([], {}, "prompt_ids"),
        ([10**6], {}, "prompt_ids"),
        ([-1], {}, "prompt_ids"),
        ([1] * 9000, {}, "prompt_ids"),
        ([1], {"temperature": -1}, "temperature"),
        ([1], {"max_tokens": 0}, "max_tokens"),
        ([1], {"max_tokens": "many"}, "max_tokens"),
        ([1], {"temprature": 1}, "temprature"),
        # What vLLM's front end lets pass and its core cannot decode: it would go deaf.
        ([1.0], {}, "prompt_ids"),
        ([True], {}, "prompt_ids"),
        ([1], {"seed": 1.5}, "seed"),
        ([1], {"ignore_eos": "yes"}, "ignore_eos"),
        ([1], {"min_tokens": 1.0}, "min_tokens"),
        ([1], {"max_tokens": True}, "max_tokens"),
        ([1], {"n": 2}, "'n'"),
        ([1], {"max_tokens": 1, "max_new_tokens": 1}, "max_new_tokens"),
    ],
)
async def test_a_bad_request_is_refused_by_field_and_hurts_nobody(
    bench: Workbench,
    client: LLMServerClient,
    prompt: list[int],
    sampling: dict[str, Any],
    field: str,
) -> None:
    with pytest.raises(RequestError) as refused:
        await client.generate("bad", prompt_ids=prompt, sampling_params=sampling)
    assert field in refused.value.field
    await client.generate("bad", prompt_ids=[1], sampling_params={"max_tokens": 1})
    await until_idle(bench)


async def test_a_seed_is_refused_where_it_would_cost_the_engine(
    bench: Workbench, client: LLMServerClient
) -> None:
    if bench.snapshot().device != "cpu":
        pytest.skip("a CPU engine is missing")
    with pytest.raises(RequestError, match="enable_chunked_prefill") as refused:
        await client.generate("seeded", prompt_ids=[1], sampling_params={"seed": 3})
    assert refused.value.field == "sampling_params['seed']"


async def test_cancelling_a_call_stops_it_in_the_engine_and_leaves_its_neighbour(
    bench: Workbench, client: LLMServerClient
) -> None:
    long = {"max_tokens": 4000, "ignore_eos": True}
    short = {"max_tokens": 40, "ignore_eos": True}
    doomed = asyncio.create_task(client.generate("doomed", prompt_ids=[1], sampling_params=long))
    neighbour = asyncio.create_task(
        client.generate("doomed", prompt_ids=[2], sampling_params=short)
    )
    async with asyncio.timeout(20):
        while sum(r.engine.running for r in (await _replicas(bench)) if r.engine) < 2:
            await asyncio.sleep(0.02)
    doomed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    assert len((await neighbour).token_ids) == 40
    await until_idle(bench)


async def _replicas(bench: Workbench) -> Any:
    return (await asyncio.to_thread(bench.snapshot)).replicas


async def test_a_deadline_is_kept_and_frees_the_replica(
    bench: Workbench, client: LLMServerClient
) -> None:
    with pytest.raises(DeadlineError):
        await client.generate(
            "late",
            prompt_ids=[1],
            sampling_params={"max_tokens": 4000, "ignore_eos": True},
            deadline_s=0.5,
        )
    await until_idle(bench)


async def test_engine_figures_and_books_agree_on_what_was_sampled(
    bench: Workbench, client: LLMServerClient
) -> None:
    await until_idle(bench)
    before = await _replicas(bench)
    output = await client.generate(
        "count", prompt_ids=[5] * 40, sampling_params={"max_tokens": 10, "ignore_eos": True}
    )
    after = await _replicas(bench)
    grown = {
        now.status.replica_id: (
            now.engine.generation_tokens - then.engine.generation_tokens,
            now.engine.prompt_tokens - then.engine.prompt_tokens,
            now.load.acquired - then.load.acquired,
        )
        for now, then in zip(after, before, strict=True)
    }
    other = ({"replica-0", "replica-1"} - {output.replica_id}).pop()
    assert grown == {output.replica_id: (10, 40, 1), other: (0, 0, 0)}
