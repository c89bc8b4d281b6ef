"""Several things at once, at seeded moments."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.chaos import harm
from tests.chaos.conversation import ROLLOUTS, TURNS
from tests.chaos.harm import FaultKind
from tests.chaos.pools import pids, rounds, settled, simulated
from tests.chaos.scenario import played
from workbench.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from workbench import Workbench

    Tell = Callable[[str], None]

pytestmark = [pytest.mark.chaos, pytest.mark.ray]

TOKENS = 60
STRIKES = 5


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with simulated(3, workers=2) as opened:
        yield opened


class Mix:
    """Draws what happens. Verbs that wait run beside what comes next."""

    def __init__(self, bench: Workbench, seed: int, folder: Path, beside: ThreadPoolExecutor):
        self._bench = bench
        self._rng = random.Random(f"mix {seed}")
        self._folder = folder
        self._beside = beside
        self.asked: list[Callable[[], object]] = []
        self.lost = False

    def strikes(self) -> list[tuple[int, Callable[[], str]]]:
        every = ROLLOUTS * TURNS
        at = sorted(self._rng.randrange(every // 8, every * 2 // 3) for _ in range(STRIKES))
        drawn = self._rng.sample(sorted(self._known), STRIKES)
        return [(turns, partial(self._fall, name)) for turns, name in zip(at, drawn, strict=True)]

    @property
    def _known(self) -> dict[str, Callable[[], str]]:
        bench = self._bench
        return {
            "actor killed": lambda: harm.kill_actor(bench, self._one()),
            "actor stopped": lambda: harm.freeze_actor(bench, self._one()),
            "balancer killed": lambda: harm.kill_balancer(bench),
            "crash": lambda: harm.inject(bench, self._one(), FaultKind.CRASH),
            "death": lambda: harm.inject(bench, self._one(), FaultKind.DEATH),
            "hang": lambda: harm.inject(bench, self._one(), FaultKind.HANG),
            "refuse": lambda: harm.inject(bench, self._one(), FaultKind.REFUSE, requests=5),
            "worker killed": self._kill_worker,
            "weights": self._weights,
            "broken weights": self._broken_weights,
            "scaled": self._scale,
            "restarted": self._restart,
            "paused": self._pause,
            "aborted caches": self._clear,
        }

    def _fall(self, name: str) -> str:
        return self._known[name]()

    def _one(self) -> str:
        """A replica that has a process, so that something can be done to it."""
        deadline = time.monotonic() + 60
        while not (found := sorted(set(harm.actors(self._bench)) & set(pids(self._bench)))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self._rng.choice(found)
