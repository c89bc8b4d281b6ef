"""A batch's handle keeps its rows, whatever becomes of the pool that it looks at."""

from __future__ import annotations

import asyncio
import threading

from tests.unit.rollout.test_manager import Immediate, manager
from workbench.aio import LoopThread
from workbench.facade.handle import Rollout


class Hanging(Immediate):
    async def run(self, setup, spec):
        await asyncio.Event().wait()


def test_a_pool_that_closes_during_the_last_look_leaves_the_cancelled_rows():
    loop = LoopThread("test-io")
    looked = threading.Semaphore(0)

    async def pool():
        looked.release()
        await asyncio.Event().wait()  # no look at the pool ever comes back

    async def start():
        return manager(Hanging()).start(["a", "b"])

    rollout = Rollout(loop.run(start()), loop, pool, progress=False)
    looked.acquire()
    rollout.cancel()
    loop.close()
    assert {str(trajectory.status) for trajectory in rollout.result(5)} == {"cancelled"}
