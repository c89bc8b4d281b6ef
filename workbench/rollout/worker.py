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

from workbench.rollout.rendering import Renderer, make_renderer
from workbench.rollout.rewards import Reward, score
from workbench.rollout.trajectory import RolloutStatus, Trajectory, TrajectoryBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.client import LLMServerClient
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.tasks import RolloutSpec
    from workbench.types import SamplingParams


@dataclass(frozen=True, slots=True)
class RolloutSetup:
    """What all rollouts of a batch share."""

    agent: str
    loop: type[AgentLoopBase]
    loop_args: Mapping[str, Any] = field(default_factory=dict)
    sampling_params: SamplingParams = field(default_factory=dict)
    reward: Reward | None = None
    timeout_s: float | None = None
    """Wall time of one rollout; None for no limit."""


class AgentLoopWorker:
    """Plays rollouts through one client with one renderer."""

    def __init__(self, client: LLMServerClient, renderer: Renderer) -> None:
        self._client = client
        self._renderer = renderer

    @classmethod
    def for_model(cls, client: LLMServerClient, model_dir: str, reference: str) -> AgentLoopWorker:
        """With the renderer of a model."""
        return cls(client, make_renderer(model_dir, reference))

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play one rollout to its end, whatever that is."""
        started = time.monotonic()
        loop: AgentLoopBase | None = None
        error: BaseException | None = None
        try:
            async with asyncio.timeout(setup.timeout_s):
                loop = setup.loop(client=self._client, renderer=self._renderer, **setup.loop_args)
                await loop.run(setup.sampling_params, **spec.task)
        except (Exception, asyncio.CancelledError) as caught:  # noqa: BLE001 - it is the row's
            error = caught
        finally:
            if loop is not None:
                self._client.end_session(loop.session_id)
        builder = loop.trajectory if loop is not None else TrajectoryBuilder()
        status, failure = _outcome(error)
        played = builder.build(
            rollout_id=spec.rollout_id,
            group=spec.group,
            index=spec.index,
            agent=setup.agent,
            task=spec.task,
            status=status,
            reward=None,
            wall_s=time.monotonic() - started,
            **failure,
        )
        return await _rewarded(played, setup.reward)


async def _rewarded(played: Trajectory, reward: Reward | None) -> Trajectory:
    if reward is None or played.status is not RolloutStatus.DONE:
        return played
    try:
        total, parts = await score(reward, played)
    except Exception as error:  # noqa: BLE001 - a user's function: its failure is the row's
        status, failure = _outcome(error)
        return replace(played, status=status, **failure)
    return replace(played, reward=total, reward_parts=parts)


def _outcome(error: BaseException | None) -> tuple[RolloutStatus, dict[str, str]]:
    if error is None:
        return RolloutStatus.DONE, {}
    if isinstance(error, asyncio.CancelledError):
        return RolloutStatus.CANCELLED, {}
    return RolloutStatus.FAILED, failure_fields(error)


def failure_fields(error: BaseException) -> dict[str, str]:
    """How an error is written into a failed row."""
    trace = "".join(traceback.format_exception(error))
    return {"error": f"{type(error).__name__}: {error}", "traceback": trace}
