"""Progress in words, where somebody may be watching: standard error, or a cell's output.

On a terminal one line is rewritten; elsewhere (a notebook, a log) a line is added when what it says
has changed, at most every few seconds, so that a saved notebook stays readable.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from workbench.types import ReplicaState, ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.metrics.samples import RolloutSnapshot

LINE_EVERY_S = 5.0
"""Where lines are added: the least time between two."""


class Progress:
    """Shows one thing's progress; silent when ``enabled`` is False."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        # A notebook shows standard error as if something had gone wrong.
        in_cell = type(sys.stderr).__module__.startswith("ipykernel")
        self._stream = sys.stdout if in_cell else sys.stderr
        self._rewrites = self._stream.isatty()
        self._last = ""
        self._last_s = float("-inf")
        self._started_s = time.monotonic()

    def show(self, text: str, *, last: bool = False) -> None:
        """Say where it is; ``last`` ends the line."""
        if not self._enabled:
            return
        now = time.monotonic()
        if self._rewrites:
            padding = " " * max(0, len(self._last) - len(text))
            self._stream.write(f"\r{text}{padding}" + ("\n" if last else ""))
        elif last or (text != self._last and now - self._last_s >= LINE_EVERY_S):
            self._stream.write(f"{text}\n")
            self._last_s = now
        self._stream.flush()
        self._last = text

    def replicas(self, statuses: Sequence[ReplicaStatus]) -> None:
        """The stages of replicas that start."""
        if not statuses:
            return
        ready = sum(status.state is ReplicaState.READY for status in statuses)
        waiting = sorted({status.stage for status in statuses if status.stage})
        elapsed = time.monotonic() - self._started_s
        doing = f", {', '.join(waiting)}" if waiting else ""
        text = f"replicas: {ready}/{len(statuses)} ready{doing} ({elapsed:.0f} s)"
        self.show(text, last=ready == len(statuses))

    def rollouts(self, now: RolloutSnapshot) -> None:
        """A batch of rollouts."""
        reward = "" if now.mean_reward is None else f", reward {now.mean_reward:.2f}"
        failed = f", {now.failed} failed" if now.failed else ""
        text = (
            f"{now.agent}: {now.ended}/{now.total} ended, {now.running} running{failed}{reward}, "
            f"{now.tokens_per_s:.0f} tokens/s ({now.wall_s:.0f} s)"
        )
        self.show(text, last=now.ended == now.total)
