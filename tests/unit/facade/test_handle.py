"""A batch's handle keeps its rows, whatever becomes of the pool that it looks at."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tests.unit.rollout.test_manager import Held, Immediate, manager
from workbench.aio import LoopThread
from workbench.errors import PoolError
from workbench.facade.handle import Rollout
from workbench.facade.reach import Reach


class Hanging(Immediate):
    async def run(self, setup, spec):
        await asyncio.Event().wait()


class Pool:
    """Stands for the pool's manager; ``answer`` says what comes of a call."""

    def __init__(self, answer=None):
        self.config = SimpleNamespace(name="lab", sample_s=1.0)
        self.looked = threading.Semaphore(0)
        self.answer = answer
        self.noted = []

    async def snapshot(self):
        self.looked.release()
        await asyncio.Event().wait()  # no look at the pool ever comes back

    async def note_rollouts(self, snapshot, trajectories):
        self.noted.append((snapshot, trajectories))
        if isinstance(self.answer, Exception):
            raise self.answer


class Seen(Pool):
    async def snapshot(self):
        raise PoolError("no figures just now")


@pytest.fixture
def loop():
    thread = LoopThread("test-io")
    yield thread
    thread.close()


def begin(loop, pool, worker, *tasks):
    async def start():
        return manager(worker).start(list(tasks))

    return Rollout(loop.run(start()), Reach(pool, loop), progress=False, again=None)


def test_a_pool_that_closes_during_the_last_look_leaves_the_cancelled_rows(loop):
    pool = Pool()
    rollout = begin(loop, pool, Hanging(), "a", "b")
    pool.looked.acquire()
    rollout.cancel()
    loop.close()
    assert {str(trajectory.status) for trajectory in rollout.result(5)} == {"cancelled"}


def test_the_pool_is_told_of_every_rollout_once_and_of_the_end(loop):
    held = Held()

    class Heard(Seen):
        async def note_rollouts(self, snapshot, trajectories):
            await super().note_rollouts(snapshot, trajectories)
            held.go.set()  # they end between two tellings

    pool = Heard()
    rollout = begin(loop, pool, held, "a", "b", "c")
    rollout.result(10)
    told = [t.rollout_id for _, ended in pool.noted for t in ended]
    assert sorted(told) == sorted(t.rollout_id for t in rollout.trajectories())
    assert pool.noted[0][0].ended == 0
    assert pool.noted[-1][0].ended == 3
    assert pool.noted[-1][0].name == rollout.name


@pytest.mark.parametrize("error", [PoolError("away"), RuntimeError("broken")])
def test_a_pool_that_does_not_hear_of_it_costs_the_batch_nothing(loop, error):
    pool = Seen(error)
    rollout = begin(loop, pool, Immediate(), "a", "b")
    assert [str(t.status) for t in rollout.result(10)] == ["done", "done"]
    assert pool.noted


def test_a_look_that_fails_in_any_way_costs_the_batch_nothing(loop):
    class Broken(Pool):
        async def snapshot(self):
            self.looked.release()
            raise ZeroDivisionError

    held, pool = Held(), Broken()
    rollout = begin(loop, pool, held, "a", "b")
    pool.looked.acquire()
    assert not rollout.done
    loop.run(asyncio.sleep(0))
    loop._loop.call_soon_threadsafe(held.go.set)
    assert {str(row.status) for row in rollout.result(5)} == {"done"}
