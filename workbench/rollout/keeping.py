"""A file that a batch's rollouts are written to as they end, so that it can be gone on with."""

from __future__ import annotations

import asyncio
import fcntl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.records import append_trajectory, read_trajectories
from workbench.rollout.summary import OF_THE_POOL, cause_of
from workbench.rollout.tasks import unfinished
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from workbench.rollout.run import Batch
    from workbench.trajectory import Trajectory


class Keeper:
    """Writes rollouts to a file in the order in which they end, apart from the event loop.

    Raises:
        ConfigError: the file cannot be written, or another batch that runs writes to it.
    """

    def __init__(self, path: str | Path) -> None:
        if Path(path).suffix != ".jsonl":
            raise ConfigError("keep", f"{str(path)!r}", allowed="a path that ends in .jsonl")
        self._path = Path(path)
        try:
            self._file = self._path.open("ab")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            problem = f"{str(path)!r} is being written by a batch that runs"
            raise ConfigError("keep", problem, allowed="a file for each batch") from None
        except OSError as error:
            raise ConfigError("keep", f"{str(path)!r} cannot be written: {error}") from error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keeper")
        self._writes: list[asyncio.Future[None]] = []

    def before(self, batch: Batch, *, retry_failed: bool = False) -> list[Trajectory]:
        """What the file has of the batch: rollouts that are done or failed, the last of each.

        Raises:
            ConfigError: it cannot be read, or is of another batch; names what differs.
        """
        try:
            kept = read_trajectories(self._path, partial=True)
            for row in kept:
                _check_same(row, batch)
            to_play = unfinished(batch.specs, kept, retry_failed=retry_failed)
        except ConfigError as error:
            problem = f"{str(self._path)!r}: {error.problem}"
            raise ConfigError("keep", problem, allowed=error.allowed or None) from error
        left = {spec.rollout_id for spec in to_play}
        last = {row.rollout_id: row for row in kept}
        return [row for name, row in last.items() if name not in left]

    def add(self, trajectory: Trajectory) -> None:
        """Write it soon; one that is to be played again is not written."""
        is_cancelled = trajectory.status is RolloutStatus.CANCELLED
        if is_cancelled or cause_of(trajectory) in OF_THE_POOL:
            return
        loop = asyncio.get_running_loop()
        self._writes.append(
            loop.run_in_executor(self._thread, append_trajectory, self._path, trajectory)
        )

    async def aclose(self) -> str:
        """Wait until all is written; why something was not, empty when all was."""
        written = await asyncio.gather(*self._writes, return_exceptions=True)
        self.close()
        return next((str(problem) for problem in written if problem is not None), "")

    def close(self) -> None:
        """Let others have the file. Idempotent."""
        self._thread.shutdown(wait=False)
        self._file.close()


def _check_same(row: Trajectory, batch: Batch) -> None:
    for name, theirs, ours in (
        ("agent", row.agent, batch.setup.agent),
        ("model", row.tokenizer, batch.setup.tokenizer),
    ):
        if theirs != ours:
            problem = f"{row.rollout_id!r} is of {name} {theirs!r} there, not {ours!r}"
            raise ConfigError("keep", problem, allowed="the file of an earlier run of this batch")
