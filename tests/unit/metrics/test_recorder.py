"""The sampler keeps its pace whatever the pool does, and a bad moment is a gap."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.unit.inprocess import now, until, virtually
from tests.unit.metrics.pools import START_S, a_replica, a_sample
from tests.unit.metrics.test_runs import a_run
from workbench.errors import BalancerLostError, ConfigError
from workbench.metrics.recorder import Recorder
from workbench.metrics.samples import Activity


class Pool:
    """Takes ``slow_s`` to be looked at, and may fail."""

    def __init__(self):
        self.asked_s = []
        self.cursors = []
        self.slow_s = 0.0
        self.error = None

    async def take(self, cursor):
        self.asked_s.append(now())
        self.cursors.append(cursor)
        await asyncio.sleep(self.slow_s)
        if self.error:
            raise self.error
        return a_sample(
            START_S + now(), a_replica(load={}), books={}, activity=Activity(cursor + 10)
        )


def recorded(recorder):
    return (recorder.history.window(0, math.inf).times_s - START_S).tolist()


async def record(pool, seconds, period_s=1.0):
    recorder = Recorder(pool.take, asyncio.get_running_loop().time, period_s)
    recorder.start()
    recorder.start()
    await asyncio.sleep(seconds)
    return recorder


@virtually
async def test_a_sample_is_taken_every_period_and_goes_on_where_the_last_one_ended():
    pool = Pool()
    recorder = await record(pool, 3.5)
    assert recorded(recorder) == [0, 1, 2, 3]
    assert pool.cursors == [0, 10, 20, 30]
    await recorder.close()


@virtually
async def test_slow_samples_do_not_pile_up_and_keep_the_beat():
    pool = Pool()
    pool.slow_s = 1.5
    recorder = await record(pool, 7.0)
    assert pool.asked_s == [0, 2, 4, 6]
    pool.slow_s = 0.5
    await asyncio.sleep(4)
    assert pool.asked_s[4:] == [8, 9, 10]
    await recorder.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BalancerLostError("it starts over"), "it starts over"),
        (OSError("no route"), "OSError: no route"),
    ],
)
@virtually
async def test_while_the_pool_cannot_be_reached_there_is_a_gap_and_a_reason(error, told):
    pool = Pool()
    recorder = await record(pool, 1.5)
    pool.error = error
    await asyncio.sleep(3)
    assert recorder.problem == told
    pool.error = None
    await asyncio.sleep(2)
    assert recorder.problem == ""
    assert recorded(recorder) == [0, 1, 5, 6]
    assert pool.cursors[-1] == 30, "nothing of the gap is lost"
    await recorder.close()


@virtually
async def test_what_was_recorded_outlives_the_recorder_and_its_task_does_not():
    before = asyncio.all_tasks()
    pool = Pool()
    recorder = await record(pool, 1.5)
    await recorder.close()
    await recorder.close()
    await until(lambda: asyncio.all_tasks() <= before)
    await asyncio.sleep(10)
    assert recorded(recorder) == [0, 1]
    assert len(recorder.read(0).seconds) == 2


@virtually
async def test_batches_of_rollouts_are_in_the_samples():
    pool = Pool()
    recorder = await record(pool, 0.5)
    recorder.runs.note(a_run("mine"))
    await asyncio.sleep(1)
    assert [run.name for run in recorder.history.latest.runs] == ["mine"]
    await recorder.close()


@pytest.mark.parametrize("period_s", [0, -1, math.inf, math.nan])
def test_a_pace_that_is_none_is_refused(period_s):
    with pytest.raises(ConfigError, match="period_s"):
        Recorder(Pool().take, lambda: 0.0, period_s)
