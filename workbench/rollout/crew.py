"""The workers that all batches and streams of one pool's handle share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from workbench.errors import PoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.tasks import RolloutSpec
    from workbench.rollout.trajectory import Trajectory
    from workbench.rollout.worker import RolloutSetup


TRY_EVERY_S = 10.0
"""Between two tries to bring back a worker that could not be."""


class WorkerPort(Protocol):
    """Plays rollouts, here or in another process. Cancelling a call stops its rollout."""

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play one to its end.

        Raises:
            WorkerDiedError: the process that played it ended.
        """
        ...

    async def revive(self) -> None:
        """Be able to play again, where it was not."""
        ...


class Crew:
    """Gives each rollout to the worker that has fewest; one that broke gets none until it is back.

    Args:
        workers: at least one.
    """

    def __init__(self, workers: Sequence[WorkerPort]) -> None:
        self._workers = workers
        self._load: Counter[int] = Counter()
        self._broken: set[int] = set()
        self._next_try_s = 0.0

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play one rollout.

        Raises:
            WorkerDiedError: the process that played it ended; another is there, or was tried.
        """
        await self._try_again()
        everyone = range(len(self._workers))
        able = [i for i in everyone if i not in self._broken] or everyone
        number = min(able, key=lambda i: self._load[i])
        self._load[number] += 1
        try:
            return await self._workers[number].run(setup, spec)
        except Exception:
            self._broken.add(number)  # it would look idle, and draw all rollouts that are left
            with contextlib.suppress(PoolError):
                await self._workers[number].revive()
                self._broken.discard(number)
            raise
        finally:
            self._load[number] -= 1

    async def revive(self) -> None:
        """Have all of them able to play.

        Raises:
            PoolError: one cannot be.
        """
        await asyncio.gather(*(worker.revive() for worker in self._workers))
        self._broken.clear()

    async def _try_again(self) -> None:
        """Now and then, whoever could not be brought back."""
        now_s = time.monotonic()
        if self._broken and now_s >= self._next_try_s:
            self._next_try_s = now_s + TRY_EVERY_S
            number = min(self._broken)
            with contextlib.suppress(PoolError):
                await self._workers[number].revive()
                self._broken.discard(number)
