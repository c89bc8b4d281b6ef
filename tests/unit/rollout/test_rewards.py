"""A reward is finite numbers or an error, never a zero by accident."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.errors import RolloutError, TaskError
from workbench.rollout.rewards import final_answer, score, verified_answer
from workbench.rollout.tasks import reasoning_tasks
from workbench.rollout.trajectory import RolloutStatus, TrajectoryBuilder


def trajectory(*said, task=None):
    builder = TrajectoryBuilder()
    builder.messages += [{"role": "user", "content": "?"}]
    builder.messages += [{"role": "assistant", "content": text} for text in said]
    return builder.build(
        rollout_id="r", group="g", index=0, agent="a", task=task or {},
        status=RolloutStatus.DONE, reward=None,
    )  # fmt: skip


@pytest.mark.parametrize("value", [1, 0.5, True, np.float32(0.5), np.array(0.5)])
async def test_a_number_is_a_reward(value):
    total, parts = await score(lambda _: value, trajectory())
    assert (total, parts) == (float(value), {})
    assert type(total) is float


async def test_parts_are_summed():
    total, parts = await score(lambda _: {"form": 0.5, "right": 1}, trajectory())
    assert (total, parts) == (1.5, {"form": 0.5, "right": 1.0})


async def test_an_async_reward_is_awaited():
    async def reward(played):
        return float(len(played.messages))

    assert await score(reward, trajectory("a")) == (2.0, {})


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), None, "great", [1.0], {"a": float("nan")}, {"a": None},
        {"a": 1e308, "b": 1e308}, {},
    ],
)  # fmt: skip
async def test_what_is_no_finite_number_is_an_error(value):
    with pytest.raises(RolloutError, match="not"):
        await score(lambda _: value, trajectory())


def test_the_final_answer_is_what_was_said_last_without_the_space_around_it():
    assert final_answer(trajectory("first", " 42\n")) == "42"
    assert final_answer(trajectory()) == ""


def test_a_right_answer_is_verified_and_a_wrong_one_is_not():
    (task,) = reasoning_tasks("chain_sum", size=1)
    assert verified_answer(trajectory(task["answer"], task=task)) == 1.0
    assert verified_answer(trajectory("no idea", task=task)) < 1.0


def test_verifying_needs_a_task_of_its_own():
    with pytest.raises(TaskError, match="reasoning_tasks"):
        verified_answer(trajectory("4", task={"prompt": "2+2"}))
