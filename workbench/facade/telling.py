"""What a batch of rollouts tells its pool, so that others see it: how far it is, what ended."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from workbench.metrics.samples import RolloutSnapshot
    from workbench.rollout.manager import RolloutRun
    from workbench.trajectory import Trajectory

MESSAGE_BYTES = 4 * 2**20
"""Of the trajectories in one message. What does not fit is not told: others see a part, whoever
plays the batch has all."""

TELL_S = 2.0
"""How long the pool may take to hear it."""

logger = logging.getLogger(__name__)


class Teller:
    """Tells of ``run`` through ``note``. Whatever goes wrong hurts the batch in no way."""

    def __init__(
        self,
        run: RolloutRun,
        note: Callable[[RolloutSnapshot, list[Trajectory]], Awaitable[None]],
    ) -> None:
        self._run = run
        self._note = note
        self._told: set[str] = set()

    async def tell(self) -> None:
        """Where the batch stands, and what ended since this was called last."""
        ended = [t for t in self._run.trajectories() if t.rollout_id not in self._told]
        self._told.update(trajectory.rollout_id for trajectory in ended)
        try:
            async with asyncio.timeout(TELL_S):
                await self._note(self._run.snapshot(), that_fit(ended, MESSAGE_BYTES))
        except Exception:
            logger.debug("the pool did not hear of %s", self._run.name, exc_info=True)


def that_fit(trajectories: Sequence[Trajectory], size: int) -> list[Trajectory]:
    """The first ones that take no more than ``size`` bytes together, without those of no size."""
    fitting = []
    for trajectory in trajectories:
        try:
            size -= len(pickle.dumps(trajectory, pickle.HIGHEST_PROTOCOL))
        except Exception:  # noqa: BLE001 - a task may hold anything
            continue
        if size < 0:
            break
        fitting.append(trajectory)
    return fitting
