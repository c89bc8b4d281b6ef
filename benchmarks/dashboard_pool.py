"""The pool that the dashboard benchmark watches: real books, engine figures that are made up.

The balancer, its 256 replicas' books, its 100,000 sessions and its samples are what a cluster has;
turns are played on it. There are no engines: their figures are drawn at random around what is
leased out, for what is measured is the cost of watching, and nothing is said about serving.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.dashboard_rollouts import Batches
from workbench.balancer import GlobalRequestLoadBalancer
from workbench.metrics.block import Block
from workbench.metrics.buckets import TTFT_BOUNDS_S
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS
from workbench.metrics.history import History, HistoryPage
from workbench.metrics.samples import Sample
from workbench.routing.messages import Report, Usage
from workbench.types import EngineFigures, PoolSnapshot, ReplicaSnapshot, ReplicaState
from workbench.types import ReplicaStatus as Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workbench.metrics.columns import Column
    from workbench.trajectory import Trajectory
    from workbench.types import Lease, RoutingEvent, RoutingSnapshot, SessionInfo

REPLICAS = 256
SESSIONS = 100_000
BUSY_SESSIONS = 24
"""Which play one turn in twenty of all."""
IN_FLIGHT = 4096
TURNS = 2000
"""Between two samples: some 8 per replica."""
MOVES = 2
"""Sessions that somebody moves between two samples; the policy moves others."""
HOT = 30
"""Sessions that a sample tells one by one, as a pool's controller asks for."""
SAMPLED = 200
"""Tokens of each turn."""
STEP_S = 1.0
"""Between two samples that are not taken at a pace."""
GROWTH = ((9_000, 5_000, 800, 0, 6, 0), (40_000, 9_000, 2_400, 2, 10, 60))
"""Of an engine's counters between two samples, at least and at most: prompt tokens, cached ones,
sampled ones, preemptions, requests that ended, evicted blocks."""
OWNER = "benchmark"


class BusyPool:
    """A pool at work, and its history: an hour by the second and a day by the minute, both full.

    Its time is the world's while it is sampled at a pace; else a second goes by with each sample.
    """

    def __init__(self, period_s: float | None = None) -> None:
        self._rng = random.Random(0)
        self._period_s = period_s
        self._lock = threading.Lock()
        self._now_s = time.time()
        self._balancer = GlobalRequestLoadBalancer(
            dict.fromkeys(_replica_ids()), clock=self._time, wall_clock=self._time
        )
        self._sessions = [f"{self._rng.getrandbits(128):032x}" for _ in range(SESSIONS)]
        self._leases: deque[tuple[Lease, int]] = deque()
        self._reports = 0
        self._engines = Engines()
        self._batches = Batches(self._rng, self._now_s)
        self._cursor = 0
        self._took: dict[str, deque[float]] = {
            "sample": deque(maxlen=1000),
            "add": deque(maxlen=1000),
        }
        for session in self._sessions:
            self._play(session)
        self._history = History()
        self._history.extend(_full_page(self._sample()))
        self.step()
        if period_s is not None:
            threading.Thread(target=self._keep_pace, args=(period_s,), daemon=True).start()

    # -- what is asked of it, from any thread -----------------------------------------------

    def read(self, cursor: int) -> HistoryPage:
        """See :class:`workbench.metrics.feed.Feed`, also for those that follow."""
        with self._lock:
            return self._history.read(cursor)

    def sessions(self, start: int, limit: int) -> list[SessionInfo]:
        """A page of the sessions."""
        with self._lock:
            return self._balancer.sessions(start, limit)

    def events(self, cursor: int, limit: int) -> tuple[Sequence[RoutingEvent], int, int]:
        """Events, where to go on, how many were lost."""
        with self._lock:
            page = self._balancer.events(cursor, limit)
        return page.items, page.cursor, page.lost

    def rollouts(self, name: str) -> list[Trajectory]:
        """Of a batch, those that ended last."""
        with self._lock:
            return self._batches.runs.trajectories(name)

    def step(self) -> None:
        """Play some turns and look."""
        with self._lock:
            self._now_s = self._time() if self._period_s else self._now_s + STEP_S
            self._work()
            sample = self._sample()
            began_s = time.perf_counter()
            self._history.add(sample)
            self._took["add"].append(time.perf_counter() - began_s)

    def took_s(self) -> dict[str, float]:
        """Median time of the balancer's ``sample`` and of the history's ``add``."""
        with self._lock:
            return {name: statistics.median(times) for name, times in self._took.items()}

    # -- turns ------------------------------------------------------------------------------

    def _time(self) -> float:
        return time.time() if self._period_s else self._now_s

    def _keep_pace(self, period_s: float) -> None:
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + period_s, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))
            self.step()

    def _work(self) -> None:
        usage = []
        for _ in range(TURNS):
            is_busy = self._rng.random() < 0.05
            session = self._sessions[self._rng.randrange(BUSY_SESSIONS if is_busy else SESSIONS)]
            usage += self._play(session)
        for session in self._rng.sample(self._sessions, MOVES):
            self._balancer.move_session(session, f"replica-{self._rng.randrange(REPLICAS)}")
        self._reports += 1
        self._balancer.exchange(
            Report(OWNER, self._reports, 1, full=self._reports == 1, usage=usage)
        )
        self._balancer.tick()
        self._batches.advance(self._now_s)

    def _play(self, session: str) -> list[Usage]:
        """Begin a turn; end the oldest, and say what it used."""
        prompt_tokens = self._rng.randrange(500, 8000)
        lease = self._balancer.acquire_server(session, prompt_tokens=prompt_tokens)
        self._leases.append((lease, prompt_tokens))
        if len(self._leases) <= IN_FLIGHT:
            return []
        lease, tokens = self._leases.popleft()
        self._balancer.release_server(lease)
        sampled, cached = 200, int(tokens * self._rng.uniform(0.6, 0.95))
        return [
            Usage(
                lease.session_id, lease.replica_id, 0, 0, sampled, cached, tokens + sampled, tokens
            )
        ]

    def _sample(self) -> Sample:
        began_s = time.perf_counter()
        routing, activity = self._balancer.sample(self._cursor, HOT)
        self._took["sample"].append(time.perf_counter() - began_s)
        self._cursor = activity.cursor
        replicas = self._engines.beside(routing)
        pool = PoolSnapshot("benchmark", "no-model", "cpu", replicas, routing)
        heard_s = tuple((replica.status.replica_id, self._now_s) for replica in replicas)
        return Sample(self._now_s, pool, activity, self._batches.runs.snapshots(), heard_s)


class Engines:
    """Figures of engines that are not there. They change with every look."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._usage = self._rng.uniform(0.3, 0.99, REPLICAS)
        self._counters = np.zeros((REPLICAS, len(GROWTH[0])), np.int64)
        self._ttft = np.zeros((REPLICAS, len(TTFT_BOUNDS_S) + 1), np.int64)

    def beside(self, routing: RoutingSnapshot) -> tuple[ReplicaSnapshot, ...]:
        """Each replica with its books and what its engine would report."""
        rng = self._rng
        self._usage = np.clip(self._usage + rng.normal(0, 0.02, REPLICAS), 0.05, 1.0)
        grown = rng.integers(
            (9000, 5000, 800, 0, 6, 0), (40000, 9000, 2400, 2, 10, 60), (REPLICAS, 6)
        )
        self._counters += grown
        self._ttft[:, 6:16] += rng.poisson(0.8, (REPLICAS, 10))
        found = []
        for place, load in enumerate(routing.replicas):
            prompt, cached, sampled, preempted, finished, evicted = self._counters[place].tolist()
            figures = EngineFigures(
                running=min(load.in_flight, 16),
                waiting=max(0, load.in_flight - 16),
                kv_cache_usage=float(self._usage[place]),
                prompt_tokens=prompt,
                cached_prompt_tokens=cached,
                generation_tokens=sampled,
                num_preempted=preempted,
                finished=finished,
                evicted_blocks=evicted,
                ttft_counts=tuple(self._ttft[place].tolist()),
            )
            status = Status(load.replica_id, ReplicaState.READY, "", 40_000 + place, "node-1", 42.0)
            found.append(ReplicaSnapshot(status, load, figures))
        return tuple(found)


def _replica_ids() -> tuple[str, ...]:
    return tuple(f"replica-{number}" for number in range(REPLICAS))


def _full_page(latest: Sample) -> HistoryPage:
    """An hour by the second and a day by the minute, up to now, as a mirror gets it."""
    now_s, seconds, minutes = latest.time_s, 3600, 1440
    block = _walks(now_s - seconds + np.arange(seconds))
    coarse = _walks((now_s // 60 - minutes + np.arange(minutes)) * 60 + 30)
    return HistoryPage(block, coarse, latest, int(now_s * 1000), 0)


def _walks(times_s: NDArray[Any]) -> Block:
    """Figures that go up and down, shares between 0 and 1."""
    rng = np.random.default_rng(len(times_s))

    def walk(columns: Sequence[Column], *shape: int) -> NDArray[np.float32]:
        steps = rng.normal(0, 0.02, (len(times_s), *shape, len(columns)))
        heights = np.array([1 if column.unit == "share" else 30 for column in columns])
        levels: NDArray[np.float32] = np.abs(np.sin(np.cumsum(steps, axis=0))).astype(np.float32)
        return levels * heights.astype(np.float32)

    replicas, pool = walk(REPLICA_COLUMNS, REPLICAS), walk(POOL_COLUMNS)
    return Block(times_s, _replica_ids(), replicas, pool)
