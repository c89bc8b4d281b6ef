"""What a batch of rollouts tells its pool, so that others see it: how far it is, what ended."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from workbench.metrics.samples import RolloutSnapshot
    from workbench.trajectory import Trajectory

MESSAGE_BYTES = 4 * 2**20
"""Of the trajectories in one message; the others go with the next. One that alone is larger is not
told: others see a part, whoever plays the batch has all."""

TELL_S = 2.0
"""How long the pool may take to hear it."""

LAST_MESSAGES = 5
"""At the end of a batch, when there is no next second."""

logger = logging.getLogger(__name__)


class Told(Protocol):
    """A batch or a stream."""

    @property
    def name(self) -> str: ...
    def trajectories(self) -> list[Trajectory]: ...
    def snapshot(self) -> RolloutSnapshot: ...


class Teller:
    """Tells of ``run`` through ``note``. Whatever goes wrong hurts the batch in no way."""

    def __init__(
        self,
        run: Told,
        note: Callable[[RolloutSnapshot, list[Trajectory]], Awaitable[None]],
    ) -> None:
        self._run = run
        self._note = note
        self._told: set[str] = set()

    async def tell(self) -> bool:
        """Where the batch stands, and what ended that was not heard; whether all of it was now."""
        ended = [t for t in self._run.trajectories() if t.rollout_id not in self._told]
        message, dealt_with = that_fit(ended, MESSAGE_BYTES)
        try:
            async with asyncio.timeout(TELL_S):
                await self._note(self._run.snapshot(), message)
        except Exception:
            logger.debug("the pool did not hear of %s", self._run.name, exc_info=True)
            return False
        self._told &= {trajectory.rollout_id for trajectory in self._run.trajectories()}
        self._told.update(trajectory.rollout_id for trajectory in ended[:dealt_with])
        return dealt_with == len(ended)

    async def tell_all(self) -> None:
        """The last words; what is not heard in so many messages is not told."""
        for _ in range(LAST_MESSAGES):
            if await self.tell():
                return


def that_fit(trajectories: Sequence[Trajectory], size: int) -> tuple[list[Trajectory], int]:
    """Those of the first ones that take no more than ``size`` bytes together.

    Returns:
        They, and how many were looked at: one that alone is too large, or cannot be sent at all, is
        passed over.
    """
    fitting: list[Trajectory] = []
    left = size
    for number, trajectory in enumerate(trajectories):
        try:
            length = len(pickle.dumps(trajectory, pickle.HIGHEST_PROTOCOL))
        except Exception:  # noqa: BLE001 - a task may hold anything
            continue
        if length > size:
            continue
        if length > left:
            return fitting, number
        left -= length
        fitting.append(trajectory)
    return fitting, len(trajectories)
