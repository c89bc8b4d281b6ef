"""Groups on their way from the rollouts to a learner. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.records import trajectory_frame
from workbench.rollout.batch import RolloutBatch, make_batch
from workbench.trajectory import RolloutStatus, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


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


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """What a learner takes at once."""

    number: int
    """Of the batch in the stream, from 1."""
    version: int
    """The learner's, when it was handed out."""
    groups: tuple[Group, ...]
    pad_id: int = field(default=0, repr=False)

    def __len__(self) -> int:
        return len(self.groups)

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
        """A line per rollout, with ``staleness`` and ``queue_s`` of its group."""
        frame = trajectory_frame(self.trajectories)
        frame["staleness"] = [g.staleness for g in self.groups for _ in g.trajectories]
        frame["queue_s"] = [g.queue_s for g in self.groups for _ in g.trajectories]
        return frame
