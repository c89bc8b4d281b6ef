"""A batch of rollouts in progress: dealt to workers, watched, gathered in order.

Any batch size goes with any number of workers. A rollout that fails is a failed row; one whose
worker died is played again elsewhere, once; the others are untouched.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from workbench.errors import FieldError, WorkerDiedError
from workbench.records import trajectory_frame
from workbench.rollout.batch import RolloutBatch, make_batch
from workbench.rollout.ledger import BatchRules, Ledger, LeftOut
from workbench.rollout.pace import Gate, Places, PoolLoad
from workbench.rollout.summary import cause_of, summary
from workbench.rollout.trajectory import RolloutStatus, Trajectory
from workbench.rollout.worker import RolloutSetup, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    import pandas as pd

    from workbench.metrics.samples import RolloutSnapshot
    from workbench.rollout.crew import Crew
    from workbench.rollout.keeping import Keeper
    from workbench.rollout.tasks import RolloutSpec

_numbers = count(1)

REFUSALS = frozenset(kind.__name__ for kind in FieldError.__subclasses__())
"""What is refused once is refused again: it is not tried another time."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that was checked, and can be played."""

    setup: RolloutSetup
    specs: Sequence[RolloutSpec]
    """All that may be played, the spare ones too."""
    n: int
    """Rows per task."""
    rules: BatchRules = field(default_factory=BatchRules)
    played: Sequence[Trajectory] = ()
    """Rows of an earlier time, which are not played again."""


class RolloutRun:
    """A batch in progress. Awaiting it gives its rows in the order of the tasks.

    Args:
        batch: what is played.
        crew: who plays it.
        places: that it shares with whatever else the pool plays.
        pad_id: fills the batch tensors.
        name: tells it apart.
        keeper: writes down what ends.
        on_change: called as each rollout gets its place, and as it ends.
    """

    def __init__(
        self,
        batch: Batch,
        crew: Crew,
        places: Places,
        *,
        pad_id: int,
        name: str | None = None,
        keeper: Keeper | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self.setup = batch.setup
        self.batch_of = batch
        self.name = name or f"rollouts-{next(_numbers)}"
        self._crew = crew
        self._places = places
        self._most = batch.rules.concurrency
        self._gate = Gate(self._most)
        self._begun: set[str] = set()
        self._running = 0
        self._on_change = on_change or (lambda: None)
        self._pad_id = pad_id
        self._keeper = keeper
        self._ledger = Ledger(batch.specs, batch.n, batch.rules)
        self._retried = 0
        self._began_s = time.time()
        self._started_s = time.monotonic()
        self._wall_s: float | None = None
        self.problem = ""
        """Why rows could not be written down; empty where they were."""
        self._stopped = {name for played in batch.played for name in self._ledger.add(played)}
        """Rollouts that are not wanted any more: told once, they may take their time to end."""
        self._tasks = {
            spec.rollout_id: asyncio.create_task(self._play(spec))
            for spec in batch.specs
            if spec.rollout_id not in self._ledger and spec.rollout_id not in self._stopped
        }
        for task in self._tasks.values():
            task.add_done_callback(lambda _: self._on_change())
        self._all = asyncio.ensure_future(self._gather())

    def __await__(self) -> Generator[Any, None, list[Trajectory]]:
        return asyncio.shield(self._all).__await__()

    def cancel(self) -> None:
        """Stop what has not ended; it becomes cancelled rows. What has ended stays."""
        self.stop(self._tasks)

    def stop(self, rollout_ids: Iterable[str]) -> None:
        """As :meth:`cancel`, some of them."""
        for rollout_id in rollout_ids:
            if rollout_id not in self._stopped:
                self._stopped.add(rollout_id)
                self._tasks[rollout_id].cancel()

    def unended(self) -> list[str]:
        """Rollouts that have not ended."""
        return [name for name in self._tasks if name not in self._ledger]

    @property
    def waiting(self) -> int:
        """Rollouts that will begin, and have not."""
        return sum(
            name not in self._begun and name not in self._stopped and not task.done()
            for name, task in self._tasks.items()
        )

    @property
    def running(self) -> int:
        """Rollouts that have their place, and have not ended."""
        return self._running

    def look(self, load: PoolLoad) -> None:
        """Begin as many as the pool can take, as it stands."""
        self._places.look(load)

    def snapshot(self) -> RolloutSnapshot:
        """Where it stands."""
        return summary(
            self._ledger,
            agent=self.setup.agent,
            running=self._running,
            wall_s=self._wall_s or time.monotonic() - self._started_s,
            name=self.name,
            started_s=self._began_s,
            retried=self._retried,
            limit=min(self._most or self._places.limit, self._places.limit),
        )

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return self._all.done()

    def ended(self) -> list[Trajectory]:
        """All that have ended, rows or not, in the order of the tasks."""
        return self._ledger.ended()

    def trajectories(self) -> list[Trajectory]:
        """The rows of those that have ended, in the order of the tasks."""
        return self._ledger.rows()

    def left_out(self) -> list[LeftOut]:
        """Those that ended and are no rows, with the cause."""
        return self._ledger.left_out()

    def to_pandas(self) -> pd.DataFrame:
        """A line per row."""
        return trajectory_frame(self.trajectories())

    def batch(self) -> RolloutBatch:
        """The batch tensors of the rows that there are."""
        return make_batch(self.trajectories(), pad_id=self._pad_id)

    async def _gather(self) -> list[Trajectory]:
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for spec in self.batch_of.specs:
            if spec.rollout_id not in self._ledger:  # cancelled before its task's first step
                self._end(self._unplayed(spec, None))
        self._wall_s = time.monotonic() - self._started_s
        if self._keeper is not None:
            self.problem = await self._keeper.aclose()
        return self.trajectories()

    async def _play(self, spec: RolloutSpec) -> None:
        try:
            async with self._gate.pass_through(), self._places.pass_through():
                self._begun.add(spec.rollout_id)
                self._running += 1
                self._on_change()
                try:
                    played = await self._to_the_end(spec)
                finally:
                    self._running -= 1
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is the row's
            played = self._unplayed(spec, error)
        self._end(played)

    def _end(self, played: Trajectory) -> None:
        self.stop(self._ledger.add(played))
        if self._keeper is not None:
            self._keeper.add(played)

    async def _to_the_end(self, spec: RolloutSpec) -> Trajectory:
        """As often as the rules have it, and once more where a worker died under it."""
        plays = deaths = 0
        while True:
            plays += 1
            try:
                played = await self._crew.run(self.setup, spec)
            except Exception as error:  # noqa: BLE001 - it is the row's
                deaths += isinstance(error, WorkerDiedError)
                played = self._unplayed(spec, error)
            allowed = self.batch_of.rules.max_attempts + min(deaths, 1)
            is_over = spec.rollout_id in self._stopped or cause_of(played) in REFUSALS
            if played.status is not RolloutStatus.FAILED or is_over or plays >= allowed:
                return replace(played, attempts=plays)
            self._retried += 1

    def _unplayed(self, spec: RolloutSpec, error: BaseException | None) -> Trajectory:
        """The row of a rollout of which nothing came back; without an error it was cancelled."""
        status, told, trace = outcome(error) if error else (RolloutStatus.CANCELLED, "", "")
        return Trajectory(
            spec.rollout_id, spec.group, spec.index, self.setup.agent, spec.task,
            segments=(), turns=(), tool_calls=(), messages=(),
            status=status, reward=None, error=told, traceback=trace,
            tokenizer=self.setup.tokenizer,
        )  # fmt: skip
