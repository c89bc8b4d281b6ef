"""Batches of rollouts for the dashboard benchmark: they grow, end and leave trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.metrics.runs import Runs
from workbench.metrics.samples import RolloutSnapshot
from workbench.trajectory import RolloutStatus, Segment, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

if TYPE_CHECKING:
    import random

BATCHES = 20
"""As many as a pool keeps. The last one is running."""
TOTAL = 100_000
"""Rollouts of a batch."""
KEPT = 200
"""Trajectories that ended before; as many as a pool keeps."""
ENDING = 3
"""Rollouts that end between two samples."""
TURNS, TOKENS = 8, 256
"""Of a trajectory; tokens of each turn."""


class Batches:
    """What a pool knows of its batches."""

    def __init__(self, rng: random.Random, now_s: float) -> None:
        self._rng = rng
        self._began_s = now_s
        self._ended = 0
        self.runs = Runs()
        for number in range(BATCHES - 1):
            self.runs.note(_snapshot(number, TOTAL, now_s - 60 * (BATCHES - number), 60.0))
        for _ in range(KEPT // ENDING + 1):
            self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Some rollouts of the running batch end."""
        ended = [self._trajectory() for _ in range(ENDING)]
        wall_s = now_s - self._began_s + 1.0
        self.runs.note(_snapshot(BATCHES - 1, self._ended, self._began_s, wall_s), ended)

    def _trajectory(self) -> Trajectory:
        self._ended += 1
        length = TURNS * TOKENS
        ids = [self._rng.randrange(150_000) for _ in range(length)]
        log_probs = [-self._rng.random() for _ in range(length)]
        mask = [int(place % TOKENS >= TOKENS // 4) for place in range(length)]
        spans = (VersionSpan(7, 0, length),)
        turns = tuple(
            Turn(0, n * TOKENS + TOKENS // 4, (n + 1) * TOKENS, FinishReason.STOP,
                 f"replica-{n}", n * TOKENS, 0, 1, 0.01, 0.1, 2.0)
            for n in range(TURNS)
        )  # fmt: skip
        segment = Segment(ids[:100], ids, mask, log_probs, spans)
        return Trajectory(
            f"rollout-{self._ended}", f"task-{self._ended // 8}", self._ended % 8, "agent",
            {"question": "?"}, (segment,), turns, (), ({"role": "user", "content": "?"},),
            RolloutStatus.DONE, self._rng.random(), wall_s=16.0,
        )  # fmt: skip


def _snapshot(number: int, ended: int, started_s: float, wall_s: float) -> RolloutSnapshot:
    failed = ended // 50
    return RolloutSnapshot(
        agent="agent",
        total=TOTAL,
        running=min(2000, TOTAL - ended),
        done=ended - failed,
        failed=failed,
        cancelled=0,
        sampled_tokens=1500 * ended,
        mean_reward=0.5,
        wall_s=wall_s,
        name=f"batch-{number}",
        failures=(("ToolError", failed), ("TimeoutError", failed // 3)),
        rewards=tuple((n / 20, (n + 1) / 20, ended // 20) for n in range(20)),
        started_s=started_s,
    )
