"""Feeds that tests hold in their hands."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.unit.widgets.pictures.scenes import make_replica, make_sample, replica_names
from workbench.metrics.history import History

if TYPE_CHECKING:
    import pandas as pd

    from workbench.metrics.block import Block
    from workbench.metrics.samples import RolloutSnapshot, Sample
    from workbench.trajectory import Trajectory

WAIT_S = 20
"""Until a test gives up on what should have happened long ago."""


def tickers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "workbench-ticker"]


def ended() -> bool:
    """Whether every ticker's thread ends by itself."""
    for thread in tickers():
        thread.join(WAIT_S)
    return not tickers()


@dataclass
class SteppedFeed:
    """Each pull waits for the test's next :meth:`step`, so that a ticker does one round each."""

    period_s: float = 0.0
    closed: bool = False
    error: str = ""
    turns: queue.Queue[bool] = field(default_factory=queue.Queue)
    asked: queue.Queue[None] = field(default_factory=queue.Queue)

    def pull(self) -> bool:
        self.asked.put(None)
        return self.turns.get(timeout=WAIT_S)

    def reached(self) -> None:
        """Wait until the ticker asks for news: its round before is over."""
        self.asked.get(timeout=WAIT_S)

    def step(self, *, news: bool = False) -> None:
        """One round, to its end."""
        self.turns.put(news)
        self.reached()

    def last_step(self, *, news: bool = False) -> None:
        """One round after which the ticker should end."""
        self.turns.put(news)


class PoolFeed:
    """A pool whose samples the test makes; the next pull brings what was made since."""

    period_s = 0.01
    is_live = True

    def __init__(self, replicas: int = 2, seconds: int = 30) -> None:
        self.name = "lab"
        self.error = ""
        self.closed = False
        self.replicas = replicas
        self.runs: tuple[RolloutSnapshot, ...] = ()
        self.history = History()
        self._lock = threading.Lock()  # a ticker pulls while a test makes
        self.pulls = 0
        self._made: list[Sample] = []
        self._next_s = 1_764_453_000.0
        for _ in range(seconds):
            self.make()
        self.pull()

    @property
    def latest(self) -> Sample | None:
        return self.history.latest

    def make(self, in_flight: int = 3) -> None:
        """One sample, a second after the last."""
        names = replica_names(self.replicas)
        replicas = tuple(make_replica(name, in_flight=in_flight) for name in names)
        with self._lock:
            self._made.append(make_sample(replicas, time_s=self._next_s, runs=self.runs))
            self._next_s += 1.0

    def pull(self) -> bool:
        self.pulls += 1
        with self._lock:
            made, self._made = self._made, []
            for sample in made:
                self.history.add(sample)
        return bool(made)

    def window(self, start_s: float, end_s: float, points: int | None = None) -> Block:
        with self._lock:
            return self.history.window(start_s, end_s, points)

    def sessions(self, start: int, limit: int) -> pd.DataFrame:
        raise NotImplementedError

    def events(self, cursor: int, limit: int) -> pd.DataFrame:
        raise NotImplementedError

    def rollouts(self, name: str) -> list[Trajectory]:
        raise NotImplementedError
