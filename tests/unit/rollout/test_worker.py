"""A rollout ends as a trajectory, whatever its loop, its reward or the pool does."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from tests.unit.chat import ids, renderer, says
from tests.unit.inprocess import WAIT_S, manual_pool, simulated_pool, until
from workbench.rollout.loop import AgentLoopBase
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.tasks import RolloutSpec
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup


class Recited(AgentLoopBase):
    """Samples one turn, then does what ``after`` says."""

    def __init__(self, *, after=None, **common):
        super().__init__(**common)
        self._after = after

    async def run(self, sampling_params, **task):
        await self.generate(ids(task["prompt"]), sampling_params)
        if self._after:
            await self._after(self)


def spec(prompt="hello"):
    return RolloutSpec("task-3/1", "task-3", 1, {"prompt": prompt})


def setup(loop=SingleTurnAgentLoop, *, reward=None, timeout_s=None, **loop_args):
    return RolloutSetup("test", loop, loop_args, {"max_tokens": 8}, reward, timeout_s)


@asynccontextmanager
async def working(*texts):
    async with simulated_pool(says(*(texts or ("hi",)))) as pool:
        yield AgentLoopWorker(pool.client(), renderer()), pool


async def play(**options):
    async with working() as (worker, _):
        async with asyncio.timeout(WAIT_S):
            trajectory = await worker.run(setup(**options), spec())
    trajectory.check()
    return trajectory


async def test_a_rollout_knows_its_task_its_group_and_its_time():
    trajectory = await play()
    assert (trajectory.rollout_id, trajectory.group, trajectory.index) == ("task-3/1", "task-3", 1)
    assert (trajectory.agent, trajectory.task) == ("test", {"prompt": "hello"})
    assert trajectory.status == "done"
    assert trajectory.wall_s > 0


async def test_a_reward_is_recorded_with_its_parts():
    trajectory = await play(reward=lambda _: {"a": 1.0, "b": 0.5})
    assert (trajectory.reward, trajectory.reward_parts) == (1.5, {"a": 1.0, "b": 0.5})


async def test_a_reward_sees_the_finished_trajectory():
    seen = []
    trajectory = await play(reward=lambda played: seen.append(played) or 1.0)
    (played,) = seen
    assert played.segments == trajectory.segments
    assert played.messages[-1]["content"] == "hi"


async def test_without_a_reward_function_there_is_no_reward():
    assert (await play()).reward is None


def raising(_):
    raise KeyError("no such answer")


async def waiting(_):
    await asyncio.sleep(0)
    raise KeyError("no such answer")


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (raising, "KeyError: 'no such answer'"),
        (waiting, "KeyError: 'no such answer'"),
        (lambda _: float("nan"), "RolloutError: the reward nan is not a finite number"),
        (lambda _: None, "RolloutError: the reward None is not a finite number"),
    ],
)
async def test_a_reward_that_fails_makes_a_failed_row_that_keeps_its_tokens(reward, error):
    trajectory = await play(reward=reward)
    assert (trajectory.status, trajectory.reward) == ("failed", None)
    assert trajectory.error == error
    assert trajectory.sampled_tokens == 3


def leaving(_):
    raise SystemExit("enough")


async def leaves(_):
    raise SystemExit("enough")


@pytest.mark.parametrize("options", [{"reward": leaving}, {"loop": Recited, "after": leaves}])
async def test_a_wish_to_leave_the_process_is_a_failed_row_and_the_process_stays(options):
    trajectory = await play(**options)
    assert trajectory.status == "failed"
    assert "SystemExit: enough" in trajectory.error


class PanicError(BaseException):
    """As libraries in Rust raise it; no Exception."""


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def panicking(_):
    raise PanicError("it panicked")


async def panics(_):
    raise PanicError("it panicked")


async def panics_below(_):
    await asyncio.gather(panics(_))


async def says_nothing(_):
    raise UnspeakableError


@pytest.mark.parametrize(
    "options",
    [
        {"reward": panicking},
        {"reward": panics},
        {"loop": Recited, "after": panics},
        {"loop": Recited, "after": panics_below},
    ],
)
async def test_an_error_of_any_kind_is_a_failed_row_with_its_tokens(options):
    trajectory = await play(**options)
    assert (trajectory.status, trajectory.error) == ("failed", "PanicError: it panicked")
    assert "in panic" in trajectory.traceback
    assert trajectory.sampled_tokens == 3


async def test_an_error_that_cannot_be_put_in_words_is_a_failed_row_all_the_same():
    trajectory = await play(loop=Recited, after=says_nothing)
    assert trajectory.error == "UnspeakableError: (it cannot be put in words)"
    assert "in says_nothing" in trajectory.traceback


async def rewarded_by_itself(loop):
    loop.trajectory.reward = 0.9


@pytest.mark.parametrize(
    ("reward", "status"), [(raising, "failed"), (lambda _: 0.5, "done"), (None, "done")]
)
async def test_a_row_that_is_not_done_has_not_the_loops_own_reward_either(reward, status):
    trajectory = await play(loop=Recited, after=rewarded_by_itself, reward=reward)
    given = {"failed": None, "done": 0.5 if reward else 0.9}[status]
    assert (trajectory.status, trajectory.reward) == (status, given)
    assert trajectory.reward_parts == {}


async def test_a_late_reward_leaves_no_reward_of_the_loops_own():
    async def slow(_):
        await asyncio.Event().wait()

    trajectory = await play(loop=Recited, after=rewarded_by_itself, reward=slow, timeout_s=0.05)
    assert (trajectory.status, trajectory.reward) == ("failed", None)
    assert trajectory.error.startswith("DeadlineError: the reward")


class Meddling(AgentLoopBase):
    """Changes whatever it is given."""

    seen: ClassVar[list] = []

    async def run(self, sampling_params, *, messages, lock, **task):
        Meddling.seen.append((sampling_params["max_tokens"], len(messages), lock))
        sampling_params["max_tokens"] = 1
        sampling_params["stop"].append("x")
        messages.append({"role": "assistant", "content": "x"})
        messages[0]["content"] = "something else"
        await self.generate(ids("x"), {"max_tokens": 3})


async def test_a_loop_that_changes_its_inputs_changes_nobody_elses(monkeypatch):
    monkeypatch.setattr(Meddling, "seen", [])
    lock = threading.Lock()  # cannot be copied
    task = {"messages": [{"role": "user", "content": "q"}], "lock": lock}
    sampling = {"max_tokens": 8, "stop": []}
    shared = RolloutSetup("test", Meddling, {}, sampling)
    async with working() as (worker, _):
        for number in range(2):
            played = await worker.run(shared, RolloutSpec(f"t/{number}", "t", number, task))
            assert played.status == "done", played.error
    assert Meddling.seen == [(8, 1, lock)] * 2
    assert played.task == {"messages": [{"role": "user", "content": "q"}], "lock": lock}
    assert sampling == {"max_tokens": 8, "stop": []}


async def test_a_blocking_reward_holds_up_nobody_and_ends_with_the_limit():
    release = threading.Event()
    trajectory = await play(reward=lambda _: release.wait(WAIT_S), timeout_s=0.05)
    release.set()
    assert trajectory.status == "failed"
    assert trajectory.sampled_tokens == 3


async def test_a_loop_that_raises_is_a_failed_row_with_its_traceback_and_its_tokens():
    async def fail(_):
        raise ZeroDivisionError("in the loop")

    trajectory = await play(loop=Recited, after=fail, reward=lambda _: 1.0)
    assert (trajectory.status, trajectory.reward) == ("failed", None)
    assert trajectory.error == "ZeroDivisionError: in the loop"
    assert "in fail" in trajectory.traceback
    assert trajectory.sampled_tokens == 3


async def test_a_loop_that_cannot_be_made_is_a_failed_row():
    trajectory = await play(loop=SingleTurnAgentLoop, nonsense=1)
    assert trajectory.status == "failed"
    assert "nonsense" in trajectory.error


async def test_a_rollout_that_takes_too_long_is_a_failed_row_that_names_the_limit():
    async def hang(_):
        await asyncio.Event().wait()

    trajectory = await play(loop=Recited, after=hang, timeout_s=0.05)
    assert trajectory.status == "failed"
    assert trajectory.error.startswith("DeadlineError")
    assert "0.05 s" in trajectory.error
    assert trajectory.sampled_tokens == 3


async def test_a_time_limit_of_the_loops_own_is_not_taken_for_the_rollouts():
    async def impatient(_):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    trajectory = await play(loop=Recited, after=impatient, timeout_s=60.0)
    assert trajectory.error.startswith("TimeoutError")


async def test_a_rollout_that_takes_too_long_is_stopped_in_the_engine():
    async with manual_pool() as pool:
        worker = AgentLoopWorker(pool.client(), renderer())
        trajectory = await worker.run(setup(timeout_s=0.05), spec())
        assert trajectory.status == "failed"
        await until(lambda: len(pool.engines[0].aborted) == 1)
        await until(lambda: pool.in_flight == 0)


async def cancelled_at(event, worker, one):
    playing = asyncio.ensure_future(worker.run(one, spec()))
    async with asyncio.timeout(WAIT_S):
        await event.wait()
        playing.cancel()
        trajectory = await playing
    trajectory.check()
    return trajectory


async def test_a_cancelled_rollout_keeps_what_it_had_sampled():
    reached = asyncio.Event()

    async def hang(_):
        reached.set()
        await asyncio.Event().wait()

    async with working() as (worker, _):
        trajectory = await cancelled_at(
            reached, worker, setup(Recited, after=hang, reward=lambda _: 1.0)
        )
    assert (trajectory.status, trajectory.reward, trajectory.error) == ("cancelled", None, "")
    assert trajectory.sampled_tokens == 3


async def test_a_rollout_that_is_cancelled_while_it_is_rewarded_keeps_what_it_had_sampled():
    reached = asyncio.Event()

    async def slow(_):
        reached.set()
        await asyncio.Event().wait()

    async with working() as (worker, _):
        trajectory = await cancelled_at(
            reached, worker, setup(Recited, after=rewarded_by_itself, reward=slow)
        )
    assert (trajectory.status, trajectory.reward) == ("cancelled", None)
    assert trajectory.sampled_tokens == 3


async def test_a_rollout_ends_its_session_however_it_ends():
    async def fail(_):
        raise ValueError

    async with working() as (worker, pool):
        await worker.run(setup(), spec())
        await worker.run(setup(Recited, after=fail), spec())
        await until(lambda: len(set(pool.port.ended)) == 2)
        await until(lambda: pool.balancer.pins() == {})


async def test_rollouts_of_one_worker_do_not_touch_each_other():
    async with working("one", "two", "three") as (worker, _):
        played = await asyncio.gather(*(worker.run(setup(), spec(f"p{i}")) for i in range(3)))
    for i, trajectory in enumerate(played):
        trajectory.check()
        assert trajectory.messages[0]["content"] == f"p{i}"
    assert {t.messages[-1]["content"] for t in played} == {"one", "two", "three"}
