"""A pool that a test holds in its hands, and its feed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.unit.widgets.pictures.scenes import (
    make_activity,
    make_replica,
    make_run,
    make_sample,
    replica_names,
)
from workbench.errors import PoolClosedError, PoolError
from workbench.metrics.feed import Feed
from workbench.metrics.history import History, HistoryPage
from workbench.metrics.tables import event_frame, session_frame
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import (
    EngineFigures,
    EventKind,
    FinishReason,
    RoutingEvent,
    SessionInfo,
    VersionSpan,
)

if TYPE_CHECKING:
    import pandas as pd

    from workbench.metrics.samples import RolloutSnapshot

EVIL = "<img src=x onerror='window.broken=1'>"
"""What must be shown and never obeyed."""


@dataclass
class MadePool:
    """Everything that a feed asks for, and how often it did."""

    replicas: int = 2
    known: int = 120
    """Sessions."""
    seconds: int = 60
    """Samples that there are at first."""
    period_s: float = 1.0
    events: list[RoutingEvent] = field(default_factory=list)
    pages: list[tuple[int, int]] = field(default_factory=list)
    """Pages of sessions that were read."""
    reads: int = 0
    streams: tuple[RolloutSnapshot, ...] = ()
    problem: Exception | None = None
    """Raised whenever something is asked."""

    def __post_init__(self) -> None:
        self.history = History()
        self._lock = threading.Lock()
        # Ahead of its time, so that a slow test does not find its data old.
        self._next_s = float(int(time.time())) + 600.0 - self.seconds
        for _ in range(self.seconds):
            self.step()
        self.feed = Feed(
            "lab",
            self._read,
            sessions=self._sessions,
            events=self._events,
            rollouts=self._rollouts,
            period_s=self.period_s,
        )
        self.feed.pull()

    def step(self, in_flight: int = 3, kv_cache_usage: float = 0.5, done: int = 31) -> None:
        """A second passes."""
        engine = EngineFigures(running=in_flight, kv_cache_usage=kv_cache_usage)
        replicas = tuple(
            make_replica(name, in_flight=in_flight, engine=engine)
            for name in replica_names(self.replicas)
        )
        sample = make_sample(
            replicas,
            time_s=self._next_s,
            sessions=self.known,
            activity=make_activity(),
            runs=(
                *self.streams,
                make_run("batch-1"),
                make_run("batch-2", done=done),
            ),
        )
        with self._lock:
            self.history.add(sample)
        self._next_s += 1.0

    def happen(self, kind: EventKind, session_id: str, count: int = 1) -> None:
        """Events come to pass."""
        for _ in range(count):
            number = len(self.events) + 1
            self.events.append(
                RoutingEvent(number, 1.0, kind, session_id, "replica-0", "client", 1, "load", 1e9)
            )

    def close(self) -> None:
        """It is gone for good."""
        self.problem = PoolClosedError("the pool was closed")

    def lose(self, why: str = "the network is down") -> None:
        """It cannot be reached."""
        self.problem = PoolError(why)

    def find(self) -> None:
        """It can be reached again."""
        self.problem = None

    def _ask(self) -> None:
        if self.problem is not None:
            raise self.problem

    def _read(self, cursor: int) -> HistoryPage:
        self.reads += 1
        self._ask()
        with self._lock:
            return self.history.read(cursor)

    def _sessions(self, start: int, limit: int) -> pd.DataFrame:
        self._ask()
        self.pages.append((start, limit))
        numbers = range(start, min(self.known, start + limit))
        return session_frame(a_session(number) for number in numbers)

    def _events(self, cursor: int, limit: int) -> pd.DataFrame:
        self._ask()
        found = self.events[cursor : cursor + limit]
        return event_frame(found, cursor=cursor + len(found), lost=0)

    def _rollouts(self, name: str) -> list[Trajectory]:
        self._ask()
        return [a_rollout(f"{name}/task-0"), a_rollout(f"{EVIL}/{name}", failed=True)]


def a_session(number: int) -> SessionInfo:
    """The more turns, the lower its number in its hundred."""
    return SessionInfo(
        EVIL if number == 1 else f"session-{number}",
        f"replica-{number % 2}",
        0,
        100 - number % 100,
        number * 10,
        number * 3,
        number * 8,
        number % 7,
        float(number),
    )


def a_rollout(rollout_id: str, *, failed: bool = False) -> Trajectory:
    """Two turns with a tool call in between."""
    segment = Segment(
        [1, 2, 3],
        [10, 11, 12, 13, 14],
        [1, 1, 0, 1, 1],
        [-0.1, -0.2, 0.0, -0.3, -0.4],
        (VersionSpan(3, 0, 2), VersionSpan(4, 3, 5)),
    )
    turns = tuple(
        Turn(0, start, start + 2, FinishReason.STOP, "replica-0", 3, 0, 1, 0.1, 0.2, 0.5)
        for start in (0, 3)
    )
    return Trajectory(
        rollout_id,
        "task-0",
        0,
        "tool",
        {"prompt": EVIL},
        (segment,),
        turns,
        (ToolCall(0, "search", {"for": EVIL}, EVIL, well_formed=True),),
        ({"role": "user", "content": EVIL},),
        RolloutStatus.FAILED if failed else RolloutStatus.DONE,
        None if failed else 0.5,
        error=f"ToolTimeout: {EVIL}" if failed else "",
        wall_s=1.5,
    )
