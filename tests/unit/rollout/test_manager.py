"""A batch of any size goes with any number of workers, and no rollout of it is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.chat import ids, renderer, says
from tests.unit.inprocess import WAIT_S, manual_pool, simulated_pool, until
from workbench.errors import (
    ConfigError,
    FieldError,
    PoolError,
    RequestError,
    TaskError,
    WorkerDiedError,
)
from workbench.rollout.loop import AgentLoopBase
from workbench.rollout.manager import AgentLoopManager, prepare
from workbench.rollout.pace import AT_ONCE, PoolLoad
from workbench.rollout.summary import REWARD_BINS, reward_bins
from workbench.rollout.trajectory import RolloutStatus, Trajectory
from workbench.rollout.worker import AgentLoopWorker
from workbench.types import FinishReason


class Chosen(AgentLoopBase):
    """Does what its task says."""

    async def run(self, sampling_params, **task):
        await self.generate(ids(task["prompt"]), sampling_params)
        if task.get("fail"):
            raise ZeroDivisionError(task["prompt"])


class Immediate:
    """A worker that plays nothing, at once."""

    def __init__(self):
        self.played = []

    async def run(self, setup, spec):
        self.played.append(spec.rollout_id)
        await asyncio.sleep(0)
        return Trajectory(
            spec.rollout_id, spec.group, spec.index, setup.agent, spec.task, (), (), (), (),
            RolloutStatus.DONE, None,
        )  # fmt: skip

    async def revive(self):
        """It lives."""


class Held(Immediate):
    """A worker whose rollouts wait until they are let go."""

    def __init__(self):
        super().__init__()
        self.go = asyncio.Event()

    async def run(self, setup, spec):
        trajectory = await super().run(setup, spec)
        await self.go.wait()
        return trajectory


def manager(*workers, concurrency=64):
    return AgentLoopManager(workers, concurrency=concurrency, pad_id=0)


@asynccontextmanager
async def playing(*texts, workers=1, replicas=1, **options):
    """A manager whose workers play on a simulated pool."""
    async with simulated_pool(*([says(*(texts or ("hi",)))] * replicas)) as pool:
        made = [AgentLoopWorker(pool.client(), renderer()) for _ in range(workers)]
        yield manager(*made, **options), pool


async def finish(run):
    async with asyncio.timeout(WAIT_S):
        trajectories = await run
    for trajectory in trajectories:
        trajectory.check()
    return trajectories


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.integers(0, 9), n=st.integers(1, 3), workers=st.integers(1, 5),
    concurrency=st.integers(1, 4),
)  # fmt: skip
def test_any_batch_size_goes_with_any_number_of_workers(tasks, n, workers, concurrency):
    async def play():
        prompts = [f"p{i}" for i in range(tasks)]
        async with playing(workers=workers, replicas=2, concurrency=concurrency) as (made, _):
            run = made.start(prompts, n=n)
            trajectories = await finish(run)
            assert [t.rollout_id for t in trajectories] == [
                f"task-{i}/{k}" for i in range(tasks) for k in range(n)
            ]
            assert all(t.status is RolloutStatus.DONE for t in trajectories)
            assert len(run.batch()) == len(run.to_pandas()) == tasks * n
            seen = run.snapshot()
            assert (seen.total, seen.done, seen.ended, seen.running) == (tasks * n,) * 3 + (0,)

    asyncio.run(play())


async def test_one_failing_rollout_is_one_failed_row_with_its_traceback():
    async with playing(workers=2) as (made, _):
        tasks = [{"prompt": f"p{i}", "fail": i == 2} for i in range(5)]
        run = made.start(tasks, agent=Chosen, reward=lambda _: 1.0)
        trajectories = await finish(run)
        batch = run.batch()
    assert [t.status.value for t in trajectories] == ["done", "done", "failed", "done", "done"]
    assert trajectories[2].error == "ZeroDivisionError: p2"
    assert "Traceback" in trajectories[2].traceback
    assert [t.reward for t in trajectories] == [1.0, 1.0, None, 1.0, 1.0]
    assert batch.rows["reward"].isna().tolist() == [False, False, True, False, False]
    assert not batch.tensors["rm_scores"][2].any()
    assert all(t.sampled_tokens for t in trajectories), "the failed one keeps its tokens"


class Mortal(Immediate):
    """A worker that dies under its first ``deaths`` rollouts, and can be revived or not."""

    def __init__(self, deaths=1, *, error=WorkerDiedError, can_be_revived=True):
        super().__init__()
        self.deaths, self.error, self.can_be_revived = deaths, error, can_be_revived
        self.revived = 0

    async def run(self, setup, spec):
        if self.deaths:
            self.deaths -= 1
            raise self.error("the worker died")
        return await super().run(setup, spec)

    async def revive(self):
        self.revived += 1
        if not self.can_be_revived:
            raise PoolError("the new one died, too")


async def test_a_rollout_whose_worker_died_is_played_again_and_the_worker_is_replaced():
    worker = Mortal()
    run = manager(worker).start(["a", "b", "c"])
    trajectories = await finish(run)
    assert [t.status.value for t in trajectories] == ["done"] * 3
    assert sorted(t.attempts for t in trajectories) == [1, 1, 2]
    assert (worker.revived, run.snapshot().retried) == (1, 1)


async def test_a_rollout_under_which_worker_after_worker_dies_is_a_failed_row():
    (trajectory,) = await finish(manager(Mortal(99)).start(["a"]))
    assert (trajectory.status, trajectory.attempts) == (RolloutStatus.FAILED, 2)
    assert trajectory.error == "WorkerDiedError: the worker died"


async def test_a_worker_that_stays_dead_is_passed_over():
    dead, well = Mortal(99, can_be_revived=False), Immediate()
    trajectories = await finish(manager(dead, well).start(["a", "b", "c", "d"]))
    assert {t.status.value for t in trajectories} == {"done"}


async def test_what_breaks_in_a_worker_costs_its_rollouts_only():
    made = manager(Mortal(1, error=ConnectionError), Immediate())
    trajectories = await finish(made.start(["a", "b", "c", "d"]))
    (failed,) = [t for t in trajectories if t.status is RolloutStatus.FAILED]
    assert failed.error == "ConnectionError: the worker died"


class Flaky(AgentLoopBase):
    """Fails as often as its task says."""

    plays: ClassVar = Counter()

    async def run(self, sampling_params, **task):
        self.plays[task["prompt"]] += 1
        await self.generate(ids(task["prompt"]), sampling_params)
        if self.plays[task["prompt"]] <= task["failures"]:
            raise ZeroDivisionError(task["prompt"])


async def test_a_rollout_that_fails_is_played_again_as_often_as_allowed():
    Flaky.plays.clear()
    tasks = [{"prompt": str(failures), "failures": failures} for failures in range(4)]
    async with playing() as (made, _):
        run = made.start(tasks, agent=Flaky, max_attempts=3)
        trajectories = await finish(run)
    assert [t.status.value for t in trajectories] == ["done", "done", "done", "failed"]
    assert [t.attempts for t in trajectories] == [1, 2, 3, 3]
    assert all(t.num_turns == 1 for t in trajectories), "only the last time is in the row"
    assert run.snapshot().retried == 5


async def test_rollouts_that_fail_can_be_dropped_and_are_counted_with_their_tokens():
    tasks = [{"prompt": f"p{i}", "fail": i == 1} for i in range(3)]
    async with playing() as (made, _):
        run = made.start(tasks, agent=Chosen, on_failure="drop")
        trajectories = await finish(run)
    assert [t.rollout_id for t in trajectories] == ["task-0/0", "task-2/0"]
    assert len(run.batch()) == 2
    ((dropped, cause),) = run.left_out()
    assert (dropped.error, cause) == ("ZeroDivisionError: p1", "dropped")
    now = run.snapshot()
    assert (now.total, now.ended, now.missing) == (3, 3, 1)
    assert now.left_out == (("dropped", 1, dropped.sampled_tokens),)


async def test_the_long_tail_is_cut_when_a_task_has_its_rows_and_its_tokens_are_counted():
    begun = []

    class Tail(AgentLoopBase):
        async def run(self, sampling_params, **task):
            await self.generate(ids("x"), sampling_params)
            begun.append(self)
            if len(begun) > 2:
                await asyncio.Event().wait()
            await until(lambda: len(begun) == 5)

    async with playing() as (made, _):
        run = made.start(["a"], agent=Tail, n=2, spare=3)
        trajectories = await finish(run)
    assert [t.status.value for t in trajectories] == ["done"] * 2
    assert {cause for _, cause in run.left_out()} == {"cut"}
    ((cause, rollouts, tokens),) = run.snapshot().left_out
    assert (cause, rollouts) == ("cut", 3)
    assert tokens == sum(out.trajectory.sampled_tokens for out in run.left_out()) > 0


async def test_what_is_refused_is_not_tried_again():
    class Refused(Flaky):
        async def run(self, sampling_params, **task):
            self.plays[task["prompt"]] += 1
            raise RequestError("prompt_ids", "no")

    Flaky.plays.clear()
    async with playing() as (made, _):
        (row,) = await finish(made.start(["refused"], agent=Refused, max_attempts=3))
    assert (row.attempts, Flaky.plays["refused"]) == (1, 1)


class Slow(AgentLoopBase):
    """Takes its time to end when it is stopped, and may fail of it."""

    begun, cleaned = 0, 0

    def __init__(self, fails=False, **common):
        super().__init__(**common)
        self._fails = fails

    async def run(self, sampling_params, **task):
        await self.generate(ids("x"), sampling_params)
        Slow.begun += 1
        if Slow.begun == 1:
            await until(lambda: Slow.begun == 4)
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(20):
                await asyncio.sleep(0)
            Slow.cleaned += 1
            if self._fails:
                raise ZeroDivisionError from None
            raise


async def test_what_is_stopped_is_told_once_and_may_clean_up():
    Slow.begun = Slow.cleaned = 0
    async with playing() as (made, _):
        run = made.start(["a"], agent=Slow, n=1, spare=3)
        await until(lambda: run.snapshot().done == 1)
        run.cancel()
        run.cancel()
        await finish(run)
    assert Slow.cleaned == 3
    assert all(out.trajectory.sampled_tokens for out in run.left_out())


async def test_what_was_stopped_is_not_played_again():
    Slow.begun = Slow.cleaned = 0
    async with playing() as (made, _):
        run = made.start(["a"] * 4, agent=Slow, fails=True, max_attempts=3)
        await until(lambda: run.snapshot().done == 1)
        run.cancel()
        rows = await finish(run)
    assert Slow.begun == 4
    assert sorted(row.status.value for row in rows) == ["done", "failed", "failed", "failed"]


async def test_a_thousand_do_not_begin_in_one_pass_of_the_loop():
    passes = Counter()
    number = 0

    class Counting(Immediate):
        async def run(self, setup, spec):
            passes[number] += 1
            return await super().run(setup, spec)

    run = manager(Counting(), concurrency=1000).start(["a"] * 200)
    while not run.done:
        await asyncio.sleep(0)
        number += 1
    await finish(run)
    assert max(passes.values()) <= 2 * AT_ONCE


async def test_a_batch_goes_on_with_the_rows_that_it_has():
    worker = Held()
    run = manager(worker, concurrency=2).start(["a", "b", "c"])
    await until(lambda: len(worker.played) == 2)
    run.cancel()
    stopped = await finish(run)
    assert [t.status.value for t in stopped] == ["cancelled"] * 3
    worker.go.set()
    ended = [replace(stopped[1], status=RolloutStatus.DONE)]
    worker.played.clear()
    again = manager(worker).play(replace(run.batch_of, played=ended))
    assert [t.status.value for t in await finish(again)] == ["done"] * 3
    assert sorted(worker.played) == ["task-0/0", "task-2/0"]


async def test_a_batch_with_spare_ones_goes_on_without_those_that_are_not_wanted_any_more():
    worker = Immediate()
    batch = prepare(["a"], n=1, spare=2)
    (ended,) = await finish(manager(worker).start(["a"]))
    worker.played.clear()
    run = manager(worker).play(replace(batch, played=[ended]))
    assert await finish(run) == [ended]
    assert worker.played == []


async def test_a_pool_that_has_less_room_lets_fewer_in():
    worker = Held()
    run = manager(worker, concurrency=4).start([f"p{i}" for i in range(9)])
    await until(lambda: len(worker.played) == 4)
    run.look(PoolLoad(4, kv_cache_usage=0.99))
    assert run.snapshot().limit == 3
    run.look(PoolLoad(8))
    assert run.snapshot().limit == 8
    await until(lambda: len(worker.played) == 8)
    worker.go.set()
    await finish(run)


async def test_no_more_rollouts_are_in_flight_than_the_user_says():
    worker = Held()
    run = manager(worker).start([f"p{i}" for i in range(5)], concurrency=2)
    await until(lambda: len(worker.played) == 2)
    assert run.snapshot().running == 2
    worker.go.set()
    await finish(run)


async def test_rollouts_are_spread_over_the_workers():
    workers = [Held() for _ in range(3)]
    run = manager(*workers).start([f"p{i}" for i in range(9)])
    await until(lambda: run.snapshot().running == 9)
    assert [len(worker.played) for worker in workers] == [3, 3, 3]
    for worker in workers:
        worker.go.set()
    await finish(run)


async def test_no_more_rollouts_are_in_flight_than_allowed():
    worker = Held()
    run = manager(worker, concurrency=2).start([f"p{i}" for i in range(5)])
    await until(lambda: len(worker.played) == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (len(worker.played), run.snapshot().running) == (2, 2)
    worker.go.set()
    assert len(await finish(run)) == 5


async def test_cancelling_makes_cancelled_rows_of_what_has_not_ended():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        worker = AgentLoopWorker(pool.client(), renderer())
        run = manager(worker, concurrency=2).start(["a", "b", "c"])
        await until(lambda: len(engine.asked) == 2)
        engine.say(engine.asked[0], 5, finish=FinishReason.STOP)
        await until(lambda: run.snapshot().done == 1)
        await until(lambda: len(engine.asked) == 3)
        run.cancel()
        trajectories = await finish(run)
        assert sorted(t.status.value for t in trajectories) == ["cancelled", "cancelled", "done"]
        await until(lambda: not engine.open)
        await until(lambda: pool.in_flight == 0)
        assert len(run.batch()) == 3


async def test_cancelling_at_once_leaves_a_row_for_each():
    """Before any of their tasks has taken its first step."""
    run = manager(Immediate()).start(["a", "b", "c"])
    run.cancel()
    trajectories = await finish(run)
    assert [t.status.value for t in trajectories] == ["cancelled"] * 3
    assert run.snapshot().ended == 3


async def test_cancelling_what_has_ended_changes_nothing():
    run = manager(Immediate()).start(["a"])
    await finish(run)
    run.cancel()
    assert [t.status.value for t in await finish(run)] == ["done"]


async def test_giving_up_waiting_does_not_stop_the_batch():
    worker = Held()
    run = manager(worker).start(["a"])
    waiting = asyncio.ensure_future(finish(run))
    await until(lambda: worker.played)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    worker.go.set()
    assert [t.status.value for t in await finish(run)] == ["done"]


async def test_generate_sequences_gives_the_batch():
    async with playing() as (made, _):
        batch = await made.generate_sequences(["a", "b"], n=2)
    assert batch.rows["group"].tolist() == ["task-0", "task-0", "task-1", "task-1"]


async def test_cancelling_generate_sequences_stops_the_batch():
    async with manual_pool() as pool:
        (engine,) = pool.engines
        worker = AgentLoopWorker(pool.client(), renderer())
        call = asyncio.ensure_future(manager(worker).generate_sequences(["a", "b"]))
        await until(lambda: len(engine.asked) == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not engine.open)


async def test_a_snapshot_tells_where_the_batch_stands():
    async with playing() as (made, _):
        run = made.start(
            [{"prompt": "a"}, {"prompt": "b", "fail": True}], agent=Chosen, reward=lambda _: 0.5
        )
        before = run.snapshot()
        await finish(run)
        after = run.snapshot()
        later = run.snapshot()
    assert (before.total, before.ended, before.mean_reward, before.tokens_per_s) == (2, 0, None, 0)
    assert (after.done, after.failed, after.cancelled, after.running) == (1, 1, 0, 0)
    assert (after.sampled_tokens, after.mean_reward) == (6, 0.5)
    assert after.wall_s == later.wall_s, "the clock stops when the batch ends"


async def test_what_has_ended_can_be_looked_at_while_others_run():
    first, second = Immediate(), Held()
    run = manager(first, second).start(["a", "b"])
    await until(lambda: run.snapshot().done == 1)
    assert [t.rollout_id for t in run.trajectories()] == ["task-0/0"]
    assert run.to_pandas()["status"].tolist() == ["done"]
    second.go.set()
    await finish(run)


async def test_tasks_come_from_a_frame_too():
    run = manager(Immediate()).start(pd.DataFrame({"prompt": ["a", "b"]}))
    assert [t.task["prompt"] for t in await finish(run)] == ["a", "b"]


async def test_rows_with_and_without_reward_parts_share_a_batch():
    def reward(played):
        return {"form": 1.0} if played.task["prompt"] == "a" else 0.25

    async with playing() as (made, _):
        batch = await made.generate_sequences(["a", "b"], reward=reward)
    assert batch.rows["reward"].tolist() == [1.0, 0.25]
    assert batch.rows["reward_form"].isna().tolist() == [False, True]


def test_settings_that_the_loop_does_not_take_are_refused_with_those_it_does():
    with pytest.raises(ConfigError) as refused:
        manager(Immediate()).start(["a"], agent="tool", max_turns=3)
    assert refused.value.field == "max_turns"
    for name in ("limits", "max_attempts", "overlong", "reward", "keep"):
        assert name in refused.value.allowed


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rewards": None}, r"rewards: .*\(allowed: reward\)"),
        ({"max_atempts": 3}, r"max_atempts: .*\(allowed: max_attempts"),
        ({"max_tokens": 9}, r"max_tokens: .*allowed: sampling_params=\{'max_tokens'"),
        ({"tokenizer": "x"}, "tokenizer: is neither"),
        ({"n": 0}, "n: 0 .*whole number from 1"),
        ({"sampling_params": {"temperature": -1}}, r"\['temperature'\]: -1 .*number from 0"),
        ({"sampling_params": {"temperature": "a"}}, r"\['temperature'\]: 'a'"),
        ({"sampling_params": {"top_p": 2}}, r"\['top_p'\]: 2 .*from 0 to 1"),
        ({"sampling_params": {"stop": 3}}, r"\['stop'\]: 3 .*a text"),
        ({"sampling_params": {"n": 4}}, r"\['n'\]: 4 .*n=… of the batch"),
    ],
)
def test_what_is_wrong_with_a_batch_is_said_before_anything_is_played(options, complaint):
    worker = Immediate()
    with pytest.raises(FieldError, match=complaint):
        manager(worker).start(["a"], **options)
    assert worker.played == []


def test_a_wrong_task_is_refused_before_any_rollout_starts():
    worker = Immediate()
    with pytest.raises(TaskError):
        manager(worker).start(["a", {}])
    assert worker.played == []


def test_a_manager_needs_a_worker_and_room_for_a_rollout():
    with pytest.raises(ConfigError, match="workers"):
        manager()
    with pytest.raises(ConfigError, match="concurrency"):
        manager(Immediate(), concurrency=0)


# -- what a snapshot says --------------------------------------------------------------------


class Troubled(AgentLoopBase):
    """Fails as its task says."""

    async def run(self, sampling_params, *, prompt):
        await self.generate(ids(prompt), sampling_params)
        errors = {"zero": ZeroDivisionError("a: b"), "late": TimeoutError(), "key": KeyError("k")}
        if prompt in errors:
            raise errors[prompt]


async def test_a_snapshot_tells_why_rollouts_failed_and_how_rewards_lie():
    rewards = {"a": 0.0, "b": 1.0, "c": 0.25}
    async with playing() as (made, _):
        run = made.start(
            ["zero", "a", "late", "zero", "b", "c", "key"],
            agent=Troubled,
            reward=lambda trajectory: rewards[trajectory.task["prompt"]],
        )
        begun = run.snapshot()
        await finish(run)
    assert (begun.failures, begun.rewards, begun.left_s) == ((), (), None)
    seen = run.snapshot()
    assert seen.failures == (("ZeroDivisionError", 2), ("TimeoutError", 1), ("KeyError", 1))
    assert sum(count for _, count in seen.failures) == seen.failed
    filled = [(round(start, 2), count) for start, _, count in seen.rewards if count]
    assert filled == [(0.0, 1), (0.25, 1), (0.95, 1)]
    assert seen.left_s == 0.0
    assert seen.started_s == begun.started_s > 1.7e9


async def test_batches_have_names_of_their_own_unless_they_are_given_one():
    made = manager(Immediate())
    first, second = made.start(["a"]), made.start(["b"])
    given = made.play(prepare(["c"]), name="evening")
    assert len({first.name, second.name}) == 2
    assert [run.snapshot().name for run in (second, given)] == [second.name, "evening"]
    for run in (first, second, given):
        await finish(run)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40))
def test_every_reward_is_in_one_bin(rewards):
    bins = reward_bins(rewards)
    assert sum(count for _, _, count in bins) == len(rewards)
    assert len(bins) in ({0} if not rewards else {1, REWARD_BINS})
    for start, end, count in bins:
        inside = [r for r in rewards if start <= r < end or r == end == max(rewards)]
        assert count <= len(inside)
    edges = [start for start, _, _ in bins] + [end for _, end, _ in bins[-1:]]
    assert edges == sorted(edges)
    if rewards:
        assert (edges[0], edges[-1]) == (min(rewards), max(rewards))


def test_rewards_that_are_all_the_same_are_one_bin():
    assert reward_bins([0.5, 0.5]) == ((0.5, 0.5, 2),)
    assert [count for *_, count in reward_bins([0, 1, 1])] == [1] + [0] * 18 + [2]
