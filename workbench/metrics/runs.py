"""The batches of rollouts that a pool knows of, and what ended in them. Pure, and bounded."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.metrics.samples import RolloutSnapshot


class Runs:
    """The last batches by name, and of all of them the last trajectories that ended.

    Args:
        batches: kept; the one that was not heard of for longest makes room.
        trajectories: kept, of all batches together; the first that ended make room.
        tokens: that those may have together.
    """

    def __init__(self, batches: int = 20, trajectories: int = 200, tokens: int = 2_000_000) -> None:
        self._batches = batches
        self._most = trajectories
        self._tokens_left = tokens
        self._snapshots: dict[str, RolloutSnapshot] = {}
        """Last the one that was heard of last."""
        self._ended: dict[tuple[str, str], Any] = {}
        """By batch and rollout, in the order in which they ended."""

    def note(self, snapshot: RolloutSnapshot, trajectories: Sequence[Any] = ()) -> None:
        """Where a batch stands, and the trajectories that ended since it was noted last."""
        self._snapshots.pop(snapshot.name, None)
        self._snapshots[snapshot.name] = snapshot
        for trajectory in trajectories:
            self._forget(snapshot.name, trajectory.rollout_id)
            self._ended[snapshot.name, trajectory.rollout_id] = trajectory
            self._tokens_left -= _tokens(trajectory)
        if len(self._snapshots) > self._batches:
            forgotten = next(iter(self._snapshots))
            del self._snapshots[forgotten]
            for batch, rollout_id in list(self._ended):
                if batch == forgotten:
                    self._forget(batch, rollout_id)
        while self._ended and (len(self._ended) > self._most or self._tokens_left < 0):
            self._forget(*next(iter(self._ended)))

    def _forget(self, batch: str, rollout_id: str) -> None:
        if (batch, rollout_id) in self._ended:
            self._tokens_left += _tokens(self._ended.pop((batch, rollout_id)))

    def snapshots(self) -> tuple[RolloutSnapshot, ...]:
        """Of the batches, in the order in which they began."""
        return tuple(sorted(self._snapshots.values(), key=attrgetter("started_s")))

    def trajectories(self, name: str) -> list[Any]:
        """Of one batch: those that are kept, in the order in which they ended."""
        return [trajectory for (batch, _), trajectory in self._ended.items() if batch == name]


def _tokens(trajectory: Any) -> int:
    """All that it holds, whoever wrote them."""
    return sum(len(s.prompt_ids) + len(s.response_ids) for s in trajectory.segments)
