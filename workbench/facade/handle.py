"""A batch of rollouts in progress, as a notebook or a script holds it."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.aio import polite
from workbench.errors import PoolClosedError, RolloutError
from workbench.facade.progress import Progress
from workbench.facade.tables import load_frame, load_rows
from workbench.facade.telling import Teller
from workbench.records import write_trajectories
from workbench.rollout.pace import PoolLoad
from workbench.showing import bundle, table
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    import pandas as pd

    from workbench.facade.reach import Reach
    from workbench.metrics.feed import Feed
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.rollout.batch import RolloutBatch
    from workbench.rollout.ledger import LeftOut
    from workbench.rollout.run import RolloutRun
    from workbench.trajectory import Trajectory

logger = logging.getLogger(__name__)

SAMPLE_S = 0.5
"""How often a batch looks at the pool's load, and shows its own progress."""

TELL_EVERY_S = 1.0
"""How often it tells the pool where it stands."""


class Rollout:
    """Handle of a batch: watch it, wait for it (blocking or with ``await``), stop it, take it away.

    What has ended can be looked at while the rest runs.
    """

    def __init__(
        self,
        run: RolloutRun,
        reach: Reach,
        *,
        progress: bool,
        again: Callable[..., Rollout],
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self.decode = decode
        """Token ids to text, for whoever shows them."""
        self._again = again
        self._run = run
        self._reach = reach
        self._loop = reach.loop
        self._teller = Teller(run, reach.manager.note_rollouts)
        self._told_s = 0.0
        self._load: list[dict[str, object]] = []
        self._progress = Progress(enabled=progress)
        self._future: concurrent.futures.Future[list[Trajectory]] = self._loop.submit(self._watch())

    async def _watch(self) -> list[Trajectory]:
        started = time.monotonic()
        ended = asyncio.ensure_future(_result(self._run))
        try:
            while not ended.done():
                await self._look(started)
                await asyncio.wait({ended}, timeout=SAMPLE_S)
            await self._look(started)
            await self._teller.tell_all()
            if self.problem:
                logger.error("rows of %s were not kept: %s", self.name, self.problem)
        except asyncio.CancelledError:
            if not ended.done():
                raise
            # The pool was closed during the last look: the rows are there, and theirs to have.
        return ended.result()

    async def _look(self, started: float) -> None:
        self._progress.rollouts(self.snapshot())
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            self._told_s = time.monotonic()
            await self._teller.tell()
        try:
            now = await self._reach.manager.snapshot()
            self._load += load_rows(time.monotonic() - started, now)
            self._run.look(PoolLoad.of(now.replicas, self._reach.manager.limits.max_num_seqs))
        except PoolClosedError:
            self._run.cancel()
        except Exception:  # a moment without a figure: its rows are missing, and the batch goes on
            logger.debug("no look at the pool of %s", self.name, exc_info=True)

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
        if not self._run.done:
            self._loop.run(self._cancel())

    def resume(self, *, retry_failed: bool = False) -> Rollout:
        """Go on with a batch that was stopped: what did not end is played, from its beginning.

        Args:
            retry_failed: play the failed ones again, too.

        Returns:
            A handle of its own, which has the rows of this one as well.

        Raises:
            RolloutError: this one still runs.
        """
        if not self._run.done:
            raise RolloutError(f"{self.name} still runs: wait for it, or cancel it first")
        again = {RolloutStatus.CANCELLED} | ({RolloutStatus.FAILED} if retry_failed else set())
        played = [ended for ended in self._run.ended() if ended.status not in again]
        batch = replace(self._run.batch_of, played=played)
        return self._again(batch, retry_failed=retry_failed)

    def save(self, path: str | Path) -> None:
        """Write the rows that there are, token by token: ``.parquet`` or ``.jsonl``.

        :func:`workbench.records.read_trajectories` reads them back.
        """
        write_trajectories(path, self.trajectories())

    async def _cancel(self) -> None:
        self._run.cancel()
        await self._run
        # The handle follows; only its last look at the pool may take longer, and is not waited for.
        await asyncio.wait({asyncio.wrap_future(self._future)}, timeout=SAMPLE_S)

    @property
    def name(self) -> str:
        """Tells batches of one pool apart."""
        return self._run.name

    @property
    def feed(self) -> Feed:
        """The pool's figures over time, this batch among them."""
        return self._reach.feed

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return self._future.done()

    @property
    def problem(self) -> str:
        """Why rows could not be written to ``keep``; empty where they were."""
        return self._run.problem

    def snapshot(self) -> RolloutSnapshot:
        """Where it stands."""
        return self._run.snapshot()

    def trajectories(self) -> list[Trajectory]:
        """Those that have ended, in the order of the tasks."""
        return self._run.trajectories()

    def left_out(self) -> list[LeftOut]:
        """Those that ended and are no rows, with the cause: dropped, replaced or cut."""
        return self._run.left_out()

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

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("rollout", self, include, exclude)


async def _result(run: RolloutRun) -> list[Trajectory]:
    return await run
