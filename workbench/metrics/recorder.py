"""The sampler: looks at a pool at a steady pace and keeps what it saw."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.aio import end_task
from workbench.errors import ConfigError, WorkbenchError
from workbench.metrics.history import History
from workbench.metrics.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workbench.metrics.history import HistoryPage
    from workbench.metrics.samples import Sample


logger = logging.getLogger(__name__)


class Recorder:
    """Owns one task: a sample every ``period_s``, or one later where taking it took longer.

    A sample that cannot be taken is a gap.

    Args:
        take: the pool, and what sessions did after the event number it is given; its time has to
            go up. The batches of rollouts are put in here.
        clock: seconds, as fast as the running loop's.
        period_s: above 0.

    Raises:
        ConfigError: ``period_s`` is no number above 0.
    """

    def __init__(
        self,
        take: Callable[[int], Awaitable[Sample]],
        clock: Callable[[], float],
        period_s: float = 1.0,
    ) -> None:
        if not 0 < period_s < math.inf:
            raise ConfigError("period_s", f"{period_s!r}", allowed="seconds above 0")
        self._take = take
        self._clock = clock
        self._period_s = period_s
        self._cursor = 0
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self.history = History()
        self.runs = Runs()
        self.latest: Sample | None = None
        """What was seen last."""
        self.problem = ""
        """Why the last sample could not be taken; empty when it could."""

    def start(self) -> None:
        """Begin; needs a running loop. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._record(), name="recorder")

    async def close(self) -> None:
        """Stop; what was recorded stays. Idempotent."""
        await end_task(self._task)

    def read(self, cursor: int) -> HistoryPage:
        """A page of the history, from any thread."""
        with self._lock:
            return self.history.read(cursor)

    async def _record(self) -> None:
        begun_s, beat = self._clock(), 0
        while True:
            try:
                await self._look()
            except Exception as error:  # a bad moment is a gap, and no more
                ours = isinstance(error, WorkbenchError)
                problem = str(error) if ours else f"{type(error).__name__}: {error}"
                if problem != self.problem:
                    logger.warning("no sample of the pool: %s", problem, exc_info=not ours)
                self.problem = problem
            else:
                self.problem = ""
            beat = max(beat + 1, math.ceil((self._clock() - begun_s) / self._period_s))
            await asyncio.sleep(begun_s + beat * self._period_s - self._clock())

    async def _look(self) -> None:
        sample = await self._take(self._cursor)
        self._cursor = sample.activity.cursor
        self.latest = sample = replace(sample, runs=self.runs.snapshots())
        with self._lock:
            self.history.add(sample)
