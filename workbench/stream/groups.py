"""Groups on their way from the rollouts to a learner. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from workbench.records import trajectory_frame
from workbench.rollout.batch import RolloutBatch, make_batch
from workbench.showing import table
from workbench.trajectory import RolloutStatus, Trajectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to play the group of one task, once."""

    position: int
    """Of the task in the stream, from 0; epochs go on counting."""
    attempt: int
    """Which time that it is begun, from 1."""
    start_version: int
    """What the pool was on when it was begun: no token of it is older."""


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """What a queue knows of a group that has ended, without opening it."""

    ticket: Ticket
    oldest_version: int
    """Of its sampled tokens; the ticket's where there are none."""
    newest_version: int
    rollouts: int
    failed: int
    """Of the rollouts."""
    sampled_tokens: int
    longest_tokens: int
    """Sampled in the longest of its rollouts."""
    mean_reward: float | None
    """Of the rollouts that have one."""
    wall_s: float
    """Of the longest rollout."""
    digest: str = ""
    """Of its task: tells one data set from another."""

    @classmethod
    def of(cls, ticket: Ticket, rows: Sequence[Trajectory], digest: str = "") -> GroupHeader:
        """Of a group's rollouts."""
        versions = [row.versions for row in rows if row.versions is not None]
        rewards = [row.reward for row in rows if row.reward is not None]
        return cls(
            ticket,
            min((oldest for oldest, _ in versions), default=ticket.start_version),
            max((newest for _, newest in versions), default=ticket.start_version),
            len(rows),
            sum(row.status is RolloutStatus.FAILED for row in rows),
            sum(row.sampled_tokens for row in rows),
            max((row.sampled_tokens for row in rows), default=0),
            sum(rewards) / len(rewards) if rewards else None,
            max((row.wall_s for row in rows), default=0.0),
            digest,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task."""

    header: GroupHeader
    trajectories: tuple[Trajectory, ...] = field(repr=False)
    staleness: int = 0
    """The learner's version minus its oldest one, when it was handed out."""
    queue_s: float = 0.0
    """How long it waited to be handed out."""

    @property
    def position(self) -> int:
        """Of its task in the stream."""
        return self.header.ticket.position


@dataclass(frozen=True, slots=True, repr=False)
class GroupBatch:
    """What a learner takes at once."""

    number: int
    """Of the batch in the stream, from 1."""
    version: int
    """The learner's, when it was handed out."""
    groups: tuple[Group, ...]
    pad_id: int = 0

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __repr__(self) -> str:
        reward = "no reward" if self.mean_reward is None else f"mean reward {self.mean_reward:.3f}"
        return (
            f"GroupBatch({self.number}, version {self.version}, {len(self)} groups, "
            f"{len(self.trajectories)} rollouts, {reward}, staleness <= {self.max_staleness})"
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "task": group.position, "rollouts": group.header.rollouts,
                "failed": group.header.failed, "mean reward": group.header.mean_reward,
                "tokens": group.header.sampled_tokens, "staleness": group.staleness,
                "in the queue, s": round(group.queue_s, 1),
            }
            for group in self.groups
        ]  # fmt: skip
        return table(f"Batch {self.number}, learner's version {self.version}", rows)

    @property
    def trajectories(self) -> list[Trajectory]:
        """Of all groups, the rollouts of a group side by side."""
        return [row for group in self.groups for row in group.trajectories]

    @property
    def max_staleness(self) -> int:
        """Of its groups."""
        return max((group.staleness for group in self.groups), default=0)

    @property
    def mean_reward(self) -> float | None:
        """Of the rollouts that have one."""
        rewards = [row.reward for row in self.trajectories if row.reward is not None]
        return sum(rewards) / len(rewards) if rewards else None

    def batch(self) -> RolloutBatch:
        """Its tensors; see :class:`RolloutBatch`."""
        return make_batch(self.trajectories, pad_id=self.pad_id)

    def to_pandas(self) -> pd.DataFrame:
        """A line per rollout, with its versions, and what is known of its group."""
        frame = trajectory_frame(self.trajectories)
        versions = [row.versions or (None, None) for row in self.trajectories]
        frame["min_version"] = pd.array([oldest for oldest, _ in versions], dtype="Int64")
        frame["max_version"] = pd.array([newest for _, newest in versions], dtype="Int64")
        for name in ("position", "staleness", "queue_s"):
            frame[name] = [getattr(g, name) for g in self.groups for _ in g.trajectories]
        return frame
