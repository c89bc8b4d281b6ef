"""Rollouts of long-tailed lengths, the same ones in every mode, and what replicas do meanwhile.

A module of its own, so that worker processes find the loop by its name.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from workbench import AgentLoopBase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workbench import Workbench
    from workbench.trajectory import Trajectory
    from workbench.types import SamplingParams

N = 8
"""Rollouts of a task."""
GROUPS = 8
"""Tasks of a step."""
MEDIAN_TOKENS = 48
P95_TOKENS = 200
MOST_TOKENS = 512
SIGMA = math.log(P95_TOKENS / MEDIAN_TOKENS) / 1.645
LOOK_S = 0.2
"""Pause between two looks at the engines."""

_begun: Counter[str] = Counter()
"""By task: how many of its rollouts were begun in this process."""


def make_tasks(seed: int, steps: int, run: str) -> list[dict[str, Any]]:
    """The tasks of so many steps, each with the lengths of its rollouts.

    Args:
        seed: of the lengths: tasks of the same seed are equally long in every run.
        steps: of :data:`GROUPS` tasks each.
        run: tells the runs of one pool apart.
    """
    rng = random.Random(seed)

    def lengths() -> list[int]:
        drawn = (rng.lognormvariate(math.log(MEDIAN_TOKENS), SIGMA) for _ in range(N))
        return [max(1, min(MOST_TOKENS, round(tokens))) for tokens in drawn]

    return [
        {"prompt": f"Tell story {number}.", "name": f"{run}-{number}", "lengths": lengths()}
        for number in range(steps * GROUPS)
    ]


class FixedLengths(AgentLoopBase):
    """One answer, as long as the task has it for the first, second, … of its rollouts."""

    requires = ("prompt", "name", "lengths")

    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        """Sample exactly so many tokens."""
        place = _begun[task["name"]]
        _begun[task["name"]] += 1
        tokens = task["lengths"][place % N]  # a task that is played again begins from the first
        prompt_ids = await self.render.prompt([{"role": "user", "content": task["prompt"]}])
        forced = {"max_tokens": tokens, "ignore_eos": True}
        await self.generate(prompt_ids, {**sampling_params, **forced})
        self.trajectory.ended_by = "answer"


@dataclass(slots=True)
class Measured:
    """What came of one mode, over the steps that count."""

    wall_s: float = 0.0
    trajectories: int = 0
    tokens: int = 0
    """Of the rollouts that a learner got."""
    engine_tokens: int = 0
    """That the engines say they sampled, of whichever rollout."""
    idle_s: dict[str, float] = field(default_factory=dict)
    """By replica: seconds in which its engine had no request."""
    seen_s: dict[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Rates and shares."""
        idle = [self.idle_s.get(name, 0.0) / seen for name, seen in self.seen_s.items()]
        return {
            "trajectories_per_s": round(self.trajectories / self.wall_s, 3),
            "tokens_per_s": round(self.tokens / self.wall_s, 1),
            "engine_tokens_per_s": round(self.engine_tokens / self.wall_s, 1),
            "idle_share": round(sum(idle) / len(idle), 4) if idle else 0.0,
            "wall_s": round(self.wall_s, 2),
        }

    def __iadd__(self, other: Measured) -> Self:
        """The same mode, once more."""
        self.wall_s += other.wall_s
        self.trajectories += other.trajectories
        self.tokens += other.tokens
        self.engine_tokens += other.engine_tokens
        for mine, theirs in ((self.idle_s, other.idle_s), (self.seen_s, other.seen_s)):
            for name, seconds in theirs.items():
                mine[name] = mine.get(name, 0.0) + seconds
        return self


class Meter:
    """Counts what a learner gets, and looks at the engines every :data:`LOOK_S`, once begun."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._measured = Measured()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began_s: float | None = None
        self._before = 0

    def begin(self) -> None:
        """From now on it counts."""
        self._before = self._sampled()
        self._began_s = time.perf_counter()
        self._thread.start()

    def add(self, rows: Iterable[Trajectory]) -> None:
        """A learner got these."""
        for row in rows:
            if row.error:
                raise RuntimeError(f"{row.rollout_id} failed: {row.error}")
            if self._began_s is not None:
                self._measured.trajectories += 1
                self._measured.tokens += row.sampled_tokens

    def end(self) -> Measured:
        """What it was."""
        assert self._began_s is not None, "nothing was begun"
        self._measured.wall_s = time.perf_counter() - self._began_s
        self._over.set()
        self._thread.join()
        self._measured.engine_tokens = self._sampled() - self._before
        return self._measured

    def _sampled(self) -> int:
        replicas = self._bench.snapshot().replicas
        return sum(r.engine.generation_tokens for r in replicas if r.engine)

    def _watch(self) -> None:
        last_s = time.perf_counter()
        while not self._over.wait(LOOK_S):
            replicas = self._bench.snapshot().replicas
            now_s = time.perf_counter()
            for replica in replicas:
                if replica.engine is None:
                    continue  # no figure is not the same as nothing to do
                name = replica.status.replica_id
                idle = not (replica.engine.running or replica.engine.waiting)
                self._note(name, now_s - last_s, idle=idle)
            last_s = now_s

    def _note(self, name: str, seconds: float, *, idle: bool) -> None:
        measured = self._measured
        measured.seen_s[name] = measured.seen_s.get(name, 0.0) + seconds
        if idle:
            measured.idle_s[name] = measured.idle_s.get(name, 0.0) + seconds


def steps_of(tasks: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The tasks of each step."""
    return [list(tasks[i : i + GROUPS]) for i in range(0, len(tasks), GROUPS)]


def longest(tasks: Sequence[dict[str, Any]]) -> list[int]:
    """Of each step: tokens of its longest rollout, which a synchronous step waits for."""
    return [max(max(task["lengths"]) for task in step) for step in steps_of(tasks)]
