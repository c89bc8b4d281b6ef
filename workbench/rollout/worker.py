"""The worker: plays rollouts, many at once, each contained.

Whatever a loop, a tool, a reward or the pool does, a rollout ends as a trajectory: done, failed
with its error, or cancelled. A plain object; :mod:`workbench.cluster.workers` makes actors of it.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import DeadlineError
from workbench.rollout.rewards import Reward, score
from workbench.rollout.trajectory import RolloutStatus, Trajectory, TrajectoryBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.client import LLMServerClient
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.rendering import Renderer
    from workbench.rollout.tasks import RolloutSpec
    from workbench.types import SamplingParams


CONTAINED = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
"""What a loop, a tool or a reward may raise without taking more than its own row along."""


@dataclass(frozen=True, slots=True)
class RolloutSetup:
    """What all rollouts of a batch share."""

    agent: str
    loop: type[AgentLoopBase]
    loop_args: Mapping[str, Any] = field(default_factory=dict)
    sampling_params: SamplingParams = field(default_factory=dict)
    reward: Reward | None = None
    timeout_s: float | None = None
    """Wall time of one rollout, and of its reward; None for no limit."""


class AgentLoopWorker:
    """Plays rollouts through one client with one renderer."""

    def __init__(self, client: LLMServerClient, renderer: Renderer) -> None:
        self._client = client
        self._renderer = renderer

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play one rollout to its end, whatever that is."""
        started = time.monotonic()
        loop: AgentLoopBase | None = None
        error: BaseException | None = None
        limit = asyncio.timeout(setup.timeout_s)
        try:
            async with limit:
                loop = setup.loop(client=self._client, renderer=self._renderer, **setup.loop_args)
                await loop.run(setup.sampling_params, **spec.task)
        except CONTAINED as caught:
            error = caught
        finally:
            if loop is not None:
                self._client.end_session(loop.session_id)
        wall_s = time.monotonic() - started
        if limit.expired() or (setup.timeout_s and wall_s > setup.timeout_s and not error):
            error = _late("rollout", setup, error)
        builder = loop.trajectory if loop is not None else TrajectoryBuilder()
        status, told, trace = outcome(error)
        played = builder.build(
            rollout_id=spec.rollout_id,
            group=spec.group,
            index=spec.index,
            agent=setup.agent,
            task=spec.task,
            status=status,
            reward=None,
            error=told,
            traceback=trace,
            wall_s=wall_s,
        )
        return await _rewarded(played, setup)


async def _rewarded(played: Trajectory, setup: RolloutSetup) -> Trajectory:
    if setup.reward is None or played.status is not RolloutStatus.DONE:
        return played
    limit = asyncio.timeout(setup.timeout_s)
    try:
        async with limit:
            total, parts = await score(setup.reward, played)
    except CONTAINED as caught:
        error = _late("reward", setup, caught) if limit.expired() else caught
        status, told, trace = outcome(error)
        return replace(played, status=status, error=told, traceback=trace)
    return replace(played, reward=total, reward_parts=parts)


def _late(what: str, setup: RolloutSetup, cause: BaseException | None) -> DeadlineError:
    error = DeadlineError(f"the {what} took longer than {setup.timeout_s:g} s")
    error.__cause__ = cause
    return error


def outcome(error: BaseException | None) -> tuple[RolloutStatus, str, str]:
    """How a rollout that ended with ``error`` is written down: status, error, traceback."""
    if error is None:
        return RolloutStatus.DONE, "", ""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        return RolloutStatus.CANCELLED, "", ""
    trace = "".join(traceback.format_exception(error))
    return RolloutStatus.FAILED, f"{type(error).__name__}: {error}", trace
