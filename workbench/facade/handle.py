"""A batch of rollouts in progress, as a notebook or a script holds it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from workbench.aio import LoopThread, polite
from workbench.errors import PoolClosedError, WorkbenchError
from workbench.facade.html import table
from workbench.facade.progress import Progress
from workbench.facade.tables import load_frame, load_rows

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Generator

    import pandas as pd

    from workbench.rollout.batch import RolloutBatch
    from workbench.rollout.manager import RolloutRun, RolloutSnapshot
    from workbench.rollout.trajectory import Trajectory
    from workbench.types import PoolSnapshot

SAMPLE_S = 0.5
"""How often a batch looks at the pool's load, and shows its own progress."""


class Rollout:
    """Handle of a batch: watch it, wait for it (blocking or with ``await``), stop it, take it away.

    What has ended can be looked at while the rest runs.
    """

    def __init__(
        self,
        run: RolloutRun,
        loop: LoopThread,
        pool: Callable[[], Awaitable[PoolSnapshot]],
        *,
        progress: bool,
    ) -> None:
        self._run = run
        self._loop = loop
        self._pool = pool
        self._load: list[dict[str, object]] = []
        self._progress = Progress(enabled=progress)
        self._future: concurrent.futures.Future[list[Trajectory]] = loop.submit(self._watch())

    async def _watch(self) -> list[Trajectory]:
        started = time.monotonic()
        ended = asyncio.ensure_future(_result(self._run))
        try:
            while not ended.done():
                await self._look(started)
                await asyncio.wait({ended}, timeout=SAMPLE_S)
            await self._look(started)
        except asyncio.CancelledError:
            if not ended.done():
                raise
            # The pool was closed during the last look: the rows are there, and theirs to have.
        return ended.result()

    async def _look(self, started: float) -> None:
        self._progress.rollouts(self.snapshot())
        try:
            self._load += load_rows(time.monotonic() - started, await self._pool())
        except PoolClosedError:
            self._run.cancel()
        except WorkbenchError:
            pass  # a moment without a figure: its rows are missing, and the batch goes on

    def result(self, timeout_s: float | None = None) -> list[Trajectory]:
        """Wait for all of them; in the order of the tasks, a failed one among them as a row.

        An interrupt or a timeout leaves the batch running.
        """
        return self._future.result(timeout_s)

    def __await__(self) -> Generator[Any, None, list[Trajectory]]:
        # The wait may be given up; what is waited for goes on.
        return polite(self._loop.submit(self._joined())).__await__()

    async def _joined(self) -> list[Trajectory]:
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def cancel(self) -> None:
        """Stop what has not ended; it becomes cancelled rows. Nothing happens when all has."""
        if not self.done:
            self._loop.run(self._cancel())

    async def _cancel(self) -> None:
        self._run.cancel()
        await self._run
        # The handle follows; only its last look at the pool may take longer, and is not waited for.
        await asyncio.wait({asyncio.wrap_future(self._future)}, timeout=SAMPLE_S)

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return self._future.done()

    def snapshot(self) -> RolloutSnapshot:
        """Where it stands."""
        return self._run.snapshot()

    def trajectories(self) -> list[Trajectory]:
        """Those that have ended, in the order of the tasks."""
        return self._run.trajectories()

    def to_pandas(self) -> pd.DataFrame:
        """A row per rollout that has ended."""
        return self._run.to_pandas()

    def batch(self) -> RolloutBatch:
        """The batch tensors of the rollouts that have ended."""
        return self._run.batch()

    def load(self) -> pd.DataFrame:
        """The pool's load while it ran: ``t_s``, then per replica what we booked and it said."""
        return load_frame(list(self._load))

    def __repr__(self) -> str:
        now = self.snapshot()
        reward = "none" if now.mean_reward is None else f"{now.mean_reward:.3f}"
        return (
            f"Rollout({now.agent!r}, {now.ended}/{now.total} ended, {now.failed} failed, "
            f"mean reward {reward}, {now.tokens_per_s:.0f} tokens/s)"
        )

    def _repr_html_(self) -> str:
        now = self.snapshot()
        reward = None if now.mean_reward is None else round(now.mean_reward, 3)
        row = {
            "rollouts": now.total, "running": now.running, "done": now.done, "failed": now.failed,
            "cancelled": now.cancelled, "mean reward": reward,
            "sampled tokens": now.sampled_tokens, "tokens/s": round(now.tokens_per_s, 1),
            "wall s": round(now.wall_s, 1),
        }  # fmt: skip
        return table(f"Rollout: {now.agent}", [row])


async def _result(run: RolloutRun) -> list[Trajectory]:
    return await run
