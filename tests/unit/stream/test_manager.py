"""Single groups beside batches: the same workers, the same places."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.inprocess import until
from tests.unit.rollout.test_manager import Held, Immediate, finish
from workbench.errors import ConfigError, TaskError
from workbench.rollout.crew import Crew
from workbench.rollout.manager import AgentLoopManager, prepare
from workbench.rollout.pace import Places, PoolLoad
from workbench.stream.manager import FullyAsyncAgentLoopManager


async def test_one_task_is_played_n_times_and_its_rows_are_a_group():
    manager = FullyAsyncAgentLoopManager([Immediate()], concurrency=8, pad_id=0)
    batch = await manager.generate_sequences_single("1+1?", n=3)
    assert len(batch) == 3
    assert batch.rows["group"].nunique() == 1
    other = await manager.generate_sequences_single({"prompt": "2+2?"})
    assert other.rows["group"][0] != batch.rows["group"][0]


async def test_several_tasks_or_one_that_lacks_a_field_are_refused():
    manager = FullyAsyncAgentLoopManager([Immediate()], concurrency=8, pad_id=0)
    with pytest.raises(ConfigError, match="are 2 tasks"):
        await manager.generate_sequences_single(["a", "b"])
    with pytest.raises(TaskError):
        await manager.generate_sequences_single({"question": "a"})


async def test_rollouts_of_all_groups_go_to_the_worker_that_has_fewest():
    workers = [Held(), Held()]
    manager = FullyAsyncAgentLoopManager(workers, concurrency=64, pad_id=0)
    template = prepare([], n=3)
    runs = [manager.begin(template, {"prompt": "a"}, position) for position in range(4)]
    await until(lambda: sum(len(worker.played) for worker in workers) == 12)
    assert [len(worker.played) for worker in workers] == [6, 6]
    for worker in workers:
        worker.go.set()
    for run in runs:
        assert len(await finish(run)) == 3


async def test_cancelling_the_call_stops_the_rollouts():
    worker = Held()
    manager = FullyAsyncAgentLoopManager([worker], concurrency=8, pad_id=0)
    call = asyncio.ensure_future(manager.generate_sequences_single("a", n=2))
    await until(lambda: len(worker.played) == 2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert manager.free == 8


async def test_batches_and_groups_share_their_places():
    worker, places = Held(), Places(4)
    crew = Crew([worker])
    stream = FullyAsyncAgentLoopManager(crew, concurrency=places, pad_id=0)
    batches = AgentLoopManager(crew, concurrency=places, pad_id=0)
    batch = batches.start(["a", "b", "c"])
    begun = []
    group = stream.begin(prepare([], n=3), {"prompt": "d"}, 0, on_change=lambda: begun.append(1))
    await until(lambda: len(worker.played) == 4)
    assert (stream.free, group.waiting, len(begun)) == (0, 2, 1)
    stream.look(PoolLoad(6))
    await until(lambda: len(worker.played) == 6)
    assert (group.waiting, stream.limit) == (0, 6)
    worker.go.set()
    assert len(await finish(batch)) == len(await finish(group)) == 3
    assert stream.free == 6


async def test_replicas_are_those_of_its_pool():
    async def replicas():
        return {"replica-0": "its actor"}

    manager = FullyAsyncAgentLoopManager([Held()], concurrency=1, pad_id=0, replicas=replicas)
    assert await manager.get_replicas() == {"replica-0": "its actor"}
    without = FullyAsyncAgentLoopManager([Held()], concurrency=1, pad_id=0)
    assert await without.get_replicas() == {}
