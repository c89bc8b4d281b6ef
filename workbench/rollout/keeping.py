"""A file that a batch's rollouts are written to as they end, so that it can be gone on with."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.records import append_trajectory, read_trajectories
from workbench.rollout.tasks import unfinished
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.tasks import RolloutSpec
    from workbench.trajectory import Trajectory


def ended_before(path: str | Path, specs: Sequence[RolloutSpec]) -> list[Trajectory]:
    """What a file has of a batch: rollouts that are done or failed. None where there is no file.

    Raises:
        ConfigError: it cannot be read, or is of another batch; names what differs.
    """
    if Path(path).suffix != ".jsonl":
        raise ConfigError("keep", f"{str(path)!r}", allowed="a path that ends in .jsonl")
    if not Path(path).exists():
        return []
    return still_valid(read_trajectories(path, partial=True), specs)


def still_valid(played: Sequence[Trajectory], specs: Sequence[RolloutSpec]) -> list[Trajectory]:
    """Those that need not be played again, the last of each.

    Raises:
        ConfigError: they are of another batch; names what differs.
    """
    to_play = {spec.rollout_id for spec in unfinished(specs, played)}
    last = {trajectory.rollout_id: trajectory for trajectory in played}
    return [trajectory for name, trajectory in last.items() if name not in to_play]


class Keeper:
    """Writes rollouts to a file in the order in which they end, apart from the event loop."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keeper")
        self._writes: list[asyncio.Future[None]] = []

    def add(self, trajectory: Trajectory) -> None:
        """Write it soon; one that was cancelled is played again, and not written."""
        if trajectory.status is RolloutStatus.CANCELLED:
            return
        loop = asyncio.get_running_loop()
        self._writes.append(
            loop.run_in_executor(self._thread, append_trajectory, self._path, trajectory)
        )

    async def aclose(self) -> None:
        """Wait until all is written.

        Raises:
            ConfigError: something could not be.
        """
        written = await asyncio.gather(*self._writes, return_exceptions=True)
        self._thread.shutdown()
        for problem in written:
            if isinstance(problem, BaseException):
                raise problem
