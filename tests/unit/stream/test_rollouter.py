"""From tasks to queued groups: what a rollouter does when things go wrong around it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.unit.inprocess import WAIT_S, until, virtually
from tests.unit.rollout.test_manager import Held, Immediate
from workbench.errors import StreamError, WorkerDiedError
from workbench.rollout.manager import AgentLoopManager, prepare
from workbench.rollout.pace import PoolLoad
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.stream.consuming import Consumer
from workbench.stream.filters import group_filter
from workbench.stream.groups import Ticket
from workbench.stream.manager import FullyAsyncAgentLoopManager
from workbench.stream.queue import StreamQueue
from workbench.stream.rollouter import Rollouter
from workbench.stream.rules import StreamRules
from workbench.stream.source import TaskSource

RULES = StreamRules(required_samples=2, max_staleness=None, max_failures=2)


def rollouter(queue, worker, tasks, *, n=2, keeps=None):
    manager = FullyAsyncAgentLoopManager([worker], concurrency=8, pad_id=0)
    source = TaskSource(tasks, SingleTurnAgentLoop)
    return Rollouter(
        queue, source, manager, prepare([], n=n),
        max_failures=RULES.max_failures, keeps=keeps or group_filter(None),
    )  # fmt: skip


def consumer(queue):
    return Consumer(queue, "main", required_samples=2, pad_id=0)


class Dying(Immediate):
    """Its process dies under the first task, until that is begun anew."""

    async def run(self, setup, spec):
        if spec.group == "task-0" and "#" not in spec.rollout_id:
            raise WorkerDiedError("the worker that played this rollout died")
        return await super().run(setup, spec)


@virtually
async def test_a_group_whose_worker_died_is_lost_and_played_again():
    queue = StreamQueue(RULES)
    playing = asyncio.ensure_future(rollouter(queue, Dying(), ["a", "b"]).run())
    batch = await consumer(queue).get_batch()
    assert [group.position for group in batch.groups] == [0, 1]
    names = [row.rollout_id for row in batch.trajectories]
    assert names == ["task-0/0#2", "task-0/1#2", "task-1/0", "task-1/1"]
    (drop,) = (await queue.snapshot()).drops
    assert (drop.cause, drop.groups) == ("lost", 1)
    await queue.commit(batch.number)
    await playing


@virtually
async def test_a_crash_is_no_end_of_the_data():
    queue = StreamQueue(RULES)

    async def broken(*args):
        raise ZeroDivisionError("of the rollouter's own")

    queue.admit = broken
    with pytest.raises(StreamError, match="the rollouter crashed: ZeroDivisionError"):
        await rollouter(queue, Immediate(), ["a"]).run()
    now = await queue.snapshot()
    assert (now.state, now.in_flight) == ("failed", 0)
    with pytest.raises(StreamError, match="crashed"):
        await consumer(queue).get_batch()


@virtually
async def test_a_filter_that_raises_stops_the_stream_with_its_error():
    queue = StreamQueue(RULES)

    def keeps(group):
        raise KeyError("difficulty")

    with pytest.raises(
        StreamError, match="the filter raised on the group at position 0: KeyError: 'difficulty'"
    ):
        await rollouter(queue, Immediate(), ["a", "b"], keeps=keeps).run()
    assert (await queue.snapshot()).in_flight == 0


async def test_tasks_that_an_iterator_gives_in_the_wrong_form_are_failed_groups():
    queue = StreamQueue(RULES)
    tasks = iter(["a", {"question": "b"}, "c", "d"])
    playing = asyncio.ensure_future(rollouter(queue, Immediate(), tasks).run())
    taken = []
    main = consumer(queue)
    async for batch in main:
        taken += [group.position for group in batch.groups]
    assert sorted(taken) == [0, 2, 3]
    (drop,) = (await queue.snapshot()).drops
    assert (drop.cause, drop.groups) == ("failed", 1)
    await playing
    wrong = iter([{"question": "b"}] * 3)
    with pytest.raises(StreamError, match="2 groups in a row failed with TaskError"):
        await rollouter(StreamQueue(RULES), Immediate(), wrong).run()


async def test_a_rollout_that_is_cancelled_is_a_row_and_a_stop_plays_nothing_to_its_end():
    queue, worker = StreamQueue(RULES), Held()
    made = rollouter(queue, worker, ["a", "b", "c"])
    playing = asyncio.ensure_future(made.run())
    await until(lambda: len(worker.played) == 6)
    assert made.cancel("task-1/0")
    assert not made.cancel("task-1/7")
    assert sorted(name for run in made.in_flight() for name in run.unended())[0] == "task-0/0"
    await queue.stop()
    made.stop("stopped")
    await playing
    now = await queue.snapshot()
    assert (now.state, now.in_flight) == ("ended", 0)
    assert {drop.cause: drop.groups for drop in now.drops} == {"stopped": 3}
    assert made.tally.snapshot(agent="", total=0, running=0, wall_s=1.0).cancelled == 6


async def test_a_rollout_cancelled_before_its_place_came_holds_nothing_up():
    queue, worker = StreamQueue(RULES), Held()
    made = rollouter(queue, worker, ["a", "b", "c", "d"], n=3)  # 8 places: one of them waits
    playing = asyncio.ensure_future(made.run())
    await until(lambda: len(worker.played) == 8)
    assert made.cancel("task-2/2")
    made._manager.look(PoolLoad(64))
    await until(lambda: "task-3/2" in worker.played)
    worker.go.set()
    async for _ in consumer(queue):
        pass
    await playing


async def test_a_stop_does_not_wait_for_a_source_that_gives_nothing():
    blocked = threading.Event()

    def waiting():
        yield "a"
        blocked.wait(30)

    queue = StreamQueue(RULES)
    made = rollouter(queue, Immediate(), waiting())
    playing = asyncio.ensure_future(made.run())
    await until(lambda: made.tally.last)
    await queue.stop()
    made.stop("stopped")
    async with asyncio.timeout(WAIT_S):
        await playing
    assert (await queue.snapshot()).in_flight == 0
    blocked.set()


async def test_who_asks_to_cancel_groups_by_ticket_has_them_played_again():
    queue, worker = StreamQueue(RULES), Held()
    made = rollouter(queue, worker, ["a", "b"])
    playing = asyncio.ensure_future(made.run())
    await until(lambda: len(worker.played) == 4)
    made.cancel_groups([Ticket(0, 1, 0), Ticket(9, 1, 0)], "cancelled")
    await until(lambda: "task-0/0#2" in worker.played)
    worker.go.set()
    batch = await consumer(queue).get_batch()
    await queue.commit(batch.number)
    await playing
    assert sorted(group.header.ticket.attempt for group in batch.groups) == [1, 2]


@virtually
async def test_a_source_that_gives_nothing_is_what_is_waited_for():
    queue, never = StreamQueue(RULES), asyncio.Event()
    made = rollouter(queue, Immediate(), ["a", "b"])
    made._source.task = lambda position: never.wait()
    playing = asyncio.ensure_future(made.run())
    await asyncio.sleep(0.5)
    assert not made.waits_for(RULES.window), "it has just begun"
    await asyncio.sleep(1.0)
    told = "the task source, which has not given the tasks of 2 groups"
    assert made.waits_for(RULES.window) == told
    assert not (await queue.snapshot()).waits_for, "the queue cannot know"
    await queue.stop()
    made.stop("stopped")
    assert not made.waits_for(RULES.window)
    await playing


@virtually
async def test_a_pool_without_a_free_place_is_what_is_waited_for():
    queue, worker, other = StreamQueue(RULES), Held(), Held()
    made = rollouter(queue, worker, ["a", "b"])
    places = made._manager._places
    batch = AgentLoopManager([other], concurrency=places, pad_id=0).start(["x"], n=8)
    await asyncio.sleep(0.1)
    playing = asyncio.ensure_future(made.run())
    await asyncio.sleep(2.0)
    assert made.waits_for(RULES.window) == "room in the pool: all of its 8 places are taken"
    other.go.set()
    await batch
    await asyncio.sleep(0.1)
    assert not made.waits_for(RULES.window)
    worker.go.set()
    async for _ in consumer(queue):
        pass
    await playing


@virtually
async def test_a_filter_that_keeps_nothing_of_a_whole_window_is_what_is_waited_for():
    tasks = [f"t{number}" for number in range(12)]

    async def played(kept):
        keeps = lambda group: group.position in kept  # noqa: E731 - as a user writes it
        made = rollouter(queue := StreamQueue(RULES), Immediate(), tasks, keeps=keeps)
        playing = asyncio.ensure_future(made.run())
        async for _ in consumer(queue):
            pass
        await playing
        return made

    made = await played(kept={})
    assert made.waits_for(12) == "a group that the filter keeps: it kept none of the last 12"
    assert not made.waits_for(13)
    assert not (await played(kept={11})).waits_for(4), "it goes on"
