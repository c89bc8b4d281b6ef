"""The same sessions and prompts get the same replicas and seeds, in whichever process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from tests.unit.inprocess import (
    PROMPT,
    Step,
    answered,
    generate,
    manual_pool,
    opened,
    simulated_pool,
    until,
)
from workbench.client.generation import seed_of

SCRIPT = "from tests.unit.client.test_deterministic import told; told()"


async def routes_and_seeds():
    """Session → replica and seeds of its two turns, of a pool that is loaded unevenly."""
    async with simulated_pool(*[Step] * 4, policy="stable-hash") as pool:
        client = pool.client(deterministic=True)
        for turn in range(2):
            await asyncio.gather(
                *(generate(client, f"task-{i}", prompt=[i + 1] * (turn + 1)) for i in range(12))
            )
        seen = [
            (request.session_id, replica, request.sampling["seed"], request.prompt_ids)
            for replica, engine in enumerate(pool.engines)
            for request in engine.asked
        ]
    return [list(line) for line in sorted(seen)]


def told():
    print(json.dumps(asyncio.run(routes_and_seeds())))  # noqa: T201 - read by the test


def test_two_fresh_processes_agree():
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    one, other = (json.loads(process.communicate(timeout=60)[0]) for process in processes)
    assert one == other
    assert len(one) == 24
    assert len({replica for _, replica, _, _ in one}) > 1
    assert len({seed for _, _, seed, _ in one}) == 24


def test_seeds_are_the_same_from_release_to_release():
    assert seed_of("task-1", [1, 2, 3]) == 1_496_897_819


@pytest.mark.parametrize("ids", [[], [1], [1, 2**40]])
def test_a_seed_fits_what_engines_take(ids):
    assert 0 <= seed_of("s", ids) < 2**31


async def test_an_attempt_that_resumes_has_the_seed_of_what_is_known_then():
    async with manual_pool(2) as pool:
        pool.pin("s", 0)
        call, request = await opened(pool, pool.client(deterministic=True))
        pool.engines[0].say(request, 5)
        await until(lambda: not pool.engines[0]._news)
        pool.engines[0].die()
        await until(lambda: pool.engines[1].asked)
        resumed = pool.engines[1].asked[0]
        assert request.sampling["seed"] == seed_of("s", PROMPT)
        assert resumed.sampling["seed"] == seed_of("s", [*PROMPT, 5])
        await answered(pool, call, resumed, engine=1)


@pytest.mark.parametrize(("deterministic", "seed"), [(True, 7), (False, 7), (False, None)])
async def test_the_callers_seed_goes_first(deterministic, seed):
    sampling = {} if seed is None else {"seed": seed}
    async with manual_pool() as pool:
        client = pool.client(deterministic=deterministic)
        call, request = await opened(pool, client, **sampling)
        assert request.sampling.get("seed") == seed
        await answered(pool, call, request)
