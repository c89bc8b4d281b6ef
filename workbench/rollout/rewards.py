"""Rewards: a function of a finished trajectory, blocking or async.

It returns a number, or named parts whose sum is the reward. One that raises, or that returns
something else than finite numbers, makes its rollout a failed row: a failure is never a zero.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from workbench.aio import in_thread
from workbench.errors import RolloutError, TaskError
from workbench.rollout.trajectory import Trajectory

Score = float | Mapping[str, float]
Reward = Callable[[Trajectory], Score | Awaitable[Score]]


async def score(reward: Reward, trajectory: Trajectory) -> tuple[float, dict[str, float]]:
    """The reward and its parts.

    Raises:
        RolloutError: it is not made of finite numbers.
    """
    if inspect.iscoroutinefunction(reward):
        value = await reward(trajectory)
    else:
        value = await in_thread(lambda: reward(trajectory))
        if inspect.isawaitable(value):
            value = await value
    if not isinstance(value, Mapping):
        return _number(value), {}
    if not value:
        raise RolloutError("the reward has no parts, which is not a zero")
    parts = {str(name): _number(part) for name, part in value.items()}
    return _number(sum(parts.values())), parts


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RolloutError(f"the reward {value!r} is not a finite number")
    return number


def final_answer(trajectory: Trajectory) -> str:
    """What the assistant said last, without the space around it."""
    said = [m["content"] for m in trajectory.messages if m["role"] == "assistant"]
    return str(said[-1]).strip() if said else ""


def verified_answer(trajectory: Trajectory) -> Score:
    """The score that reasoning-gym's own verifier gives the final answer (0–1).

    For tasks made by :func:`workbench.rollout.tasks.reasoning_tasks`.
    """
    import reasoning_gym

    task = trajectory.task
    if "dataset" not in task or "entry" not in task:
        raise TaskError("task", "has no dataset and entry", allowed="tasks of reasoning_tasks()")
    verifier = reasoning_gym.get_score_answer_fn(task["dataset"])
    return float(verifier(final_answer(trajectory), dict(task["entry"])))
