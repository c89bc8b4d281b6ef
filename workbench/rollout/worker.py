"""The worker: plays rollouts, many at once, each contained.

Whatever a loop, a tool, a reward or the pool does, a rollout ends as a trajectory: done, failed
with its error, or cancelled. A plain object; :mod:`workbench.cluster.workers` makes actors of it.
"""

from __future__ import annotations

import asyncio
import copy
import time
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import DeadlineError
from workbench.rollout.context import ContextRules
from workbench.rollout.rewards import Reward, score
from workbench.rollout.trajectory import RolloutStatus, Trajectory, TrajectoryBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.client import LLMServerClient
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.rendering import Renderer
    from workbench.rollout.stage import RenderStage
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
    """Wall time of one rollout, and of its reward; None for no limit."""
    context: ContextRules = field(default_factory=ContextRules)
    tokenizer: str = ""
    """The model whose tokens the rollouts are made of, as it was asked for."""

    def make_loop(
        self, client: LLMServerClient, renderer: Renderer, stage: RenderStage | None = None
    ) -> AgentLoopBase:
        """The loop of one rollout."""
        return self.loop(
            client=client, renderer=renderer, stage=stage, context=self.context, **self.loop_args
        )


class AgentLoopWorker:
    """Plays rollouts through one client with one renderer.

    Args:
        client: samples.
        renderer: the model's chat format.
        stage: where rendering and parsing is done; without one, on the event loop.
    """

    def __init__(
        self, client: LLMServerClient, renderer: Renderer, stage: RenderStage | None = None
    ) -> None:
        self._client = client
        self._renderer = renderer
        self._stage = stage

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play one rollout to its end, whatever that is.

        Its loop has the task and the sampling parameters to itself, and may change them. One that
        blocks the event loop holds up the others, and its time limit counts once it lets go.
        """
        started = time.monotonic()
        loop: AgentLoopBase | None = None
        error: BaseException | None = None
        limit = asyncio.timeout(setup.timeout_s)
        try:
            async with limit:
                loop = setup.make_loop(self._client, self._renderer, self._stage)
                await loop.play(_copied(setup.sampling_params), _copied(spec.task))
        except GeneratorExit:
            raise  # nobody awaits this any more
        except BaseException as caught:  # noqa: BLE001 - it is the row's
            error = caught
        finally:
            for session_id in loop.sessions if loop is not None else ():
                self._client.end_session(session_id)
        wall_s = time.monotonic() - started
        if limit.expired() or (setup.timeout_s and wall_s > setup.timeout_s and not error):
            error = _late("rollout", setup, error)
        return await _rewarded(_written(setup, spec, loop, error, wall_s), setup)

    async def revive(self) -> None:
        """It lives as long as its process."""


def _copied(given: Mapping[str, Any]) -> dict[str, Any]:
    """For one rollout alone; what cannot be copied, such as a lock, is shared."""
    return {name: _copy(value) for name, value in given.items()}


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return value


def _written(
    setup: RolloutSetup,
    spec: RolloutSpec,
    loop: AgentLoopBase | None,
    error: BaseException | None,
    wall_s: float,
) -> Trajectory:
    """What was played, with what is known of it; without a loop nothing was."""
    builder = loop.trajectory if loop is not None else TrajectoryBuilder()
    status, told, trace = outcome(error)
    return builder.build(
        rollout_id=spec.rollout_id,
        group=spec.group,
        index=spec.index,
        agent=setup.agent,
        task=spec.task,
        status=status,
        reward=builder.reward if status is RolloutStatus.DONE else None,
        error=told,
        traceback=trace,
        wall_s=wall_s,
        tokenizer=setup.tokenizer,
    )


async def _rewarded(played: Trajectory, setup: RolloutSetup) -> Trajectory:
    if setup.reward is None or played.status is not RolloutStatus.DONE:
        return played
    limit = asyncio.timeout(setup.timeout_s)
    try:
        async with limit:
            total, parts = await score(setup.reward, played)
    except GeneratorExit:
        raise
    except BaseException as caught:  # noqa: BLE001 - it is the row's
        error = _late("reward", setup, caught) if limit.expired() else caught
        status, told, trace = outcome(error)
        return replace(played, status=status, reward=None, error=told, traceback=trace)
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
    return RolloutStatus.FAILED, f"{type(error).__name__}: {_words(error)}", _trace(error)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error's own text may fail as well
        return "(it cannot be put in words)"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above: its notes and its causes are anybody's code
        return ""
