"""kill -9 of a real engine in the middle of 64 generations."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.processes import children, gone
from workbench import Workbench
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.types import TokenOutput

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

CALLS = 64
TOKENS = 120


async def test_every_call_completes_with_aligned_ids() -> None:
    bench = await asyncio.to_thread(
        Workbench, "smollm2-135m", 2, engine_args={"dtype": "float32"}, progress=False
    )
    try:
        async with bench.client() as client:
            expected = await greedy(client, range(4), "calm")
            calls = asyncio.ensure_future(greedy(client, range(CALLS), "s"))
            pool = await until_sampled(bench, CALLS * 10)
            status = pool.replicas[0].status
            engine = children(status.pid)
            assert engine
            for pid in engine:
                os.kill(pid, signal.SIGKILL)
            outputs = await calls
            assert gone(engine)
            for output in outputs:
                assert_aligned(output)
            # What a call had before the death and what came after it make one greedy answer.
            assert [o.token_ids for o in outputs[:4]] == [o.token_ids for o in expected]
            assert {output.attempts for output in outputs} == {1, 2}
            # The actor still answers, its engine does not: no probe lets it come back.
            dead = await until_level_and_probed(bench, status.replica_id)
            assert dead.state is ReplicaState.UNHEALTHY
            later = await greedy(client, range(CALLS), "s")
            assert {output.attempts for output in later} == {1}
    finally:
        await asyncio.to_thread(bench.close)


async def greedy(client: Any, numbers: range, name: str) -> list[TokenOutput]:
    sampling = {"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True}
    return await asyncio.gather(
        *(
            client.generate(f"{name}{n}", prompt_ids=[n + 1] * 8, sampling_params=sampling)
            for n in numbers
        )
    )


async def until_level_and_probed(bench: Workbench, replica_id: str) -> Any:
    """The books on a dead replica, once its own words are known and no lease is open anywhere."""
    async with asyncio.timeout(60):
        while True:
            books = await asyncio.to_thread(bench.routing.snapshot)
            (load,) = [r for r in books.replicas if r.replica_id == replica_id]
            if not books.in_flight and f"{replica_id} died" in load.reason:
                return load
            await asyncio.sleep(0.05)


async def until_sampled(bench: Workbench, tokens: int) -> Any:
    async with asyncio.timeout(120):
        while True:
            pool = await asyncio.to_thread(bench.snapshot)
            sampled = [r.engine.generation_tokens for r in pool.replicas if r.engine]
            running = [r.engine.running for r in pool.replicas if r.engine]
            if sum(sampled) >= tokens and all(running):
                return pool
            await asyncio.sleep(0.02)


def assert_aligned(output: TokenOutput) -> None:
    assert len(output.token_ids) == len(output.log_probs) == TOKENS
    covered = [i for span in output.version_spans for i in range(span.start, span.end)]
    assert covered == list(range(TOKENS))
