"""A stream of rollouts at one moment. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.types import ByFields


@dataclass(frozen=True, slots=True)
class DropCount(ByFields):
    """What was not handed out for one cause. Told by length and reward, to show a selection."""

    cause: str
    """``too_old``, ``cancelled`` (while in flight), ``given_up`` (too old too often), ``filtered``,
    ``failed`` (every rollout), ``stopped`` (by hand), or ``lost`` (its process died)."""
    groups: int
    rollouts: int
    sampled_tokens: int
    longest_tokens: int
    """Sum over the groups of what the longest rollout of each sampled."""
    reward_sum: float
    """Of the groups' mean rewards."""
    rewarded: int
    """Groups that have one."""


def nothing(cause: str) -> DropCount:
    """No group at all."""
    return DropCount(cause, 0, 0, 0, 0, 0.0, 0)


NOTHING_TAKEN = nothing("taken")


@dataclass(frozen=True, slots=True)
class PublishMark(ByFields):
    """New weights, as a stream gave them to its pool."""

    time_s: float
    """Seconds since 1970, when it was over."""
    version: int
    mode: str
    stopped_s: float
    """The longest that a replica stood still."""
    total_s: float
    error: str = ""
    """Why no replica took them; empty where they did."""
    replaced: tuple[str, ...] = ()
    """Replicas that did not take them and are replaced."""
    refused: bool = False
    """Whether no engine saw them: they were refused, or it was interrupted before."""


@dataclass(frozen=True, slots=True)
class StreamSnapshot(ByFields):
    """Where a stream stands."""

    state: str
    """``running``, ``paused``, ``publishing``, ``ended`` or ``failed``."""
    waits_for: str
    """What it cannot go on without, in words; empty while it goes on."""
    error: str
    version: int
    """The learner's."""
    pool_version: int
    """What groups that begin now are played with."""
    max_staleness: int | None
    window: int
    """Groups that may exist or be taken, counted from the learner's last version."""
    running: tuple[tuple[int, int], ...]
    """Start version, groups in flight; ascending."""
    queued: tuple[tuple[int, int], ...]
    """Oldest version, groups in the queue; ascending."""
    handed: int
    """Groups handed out since the learner's last version."""
    uncommitted: int
    """Groups handed out whose taker has not said that it is done with them."""
    begun: int
    """Groups, each time that one is begun."""
    ended: int
    """Groups that were played to their end and queued."""
    consumed: int
    """Groups handed out, those taken back not counted."""
    batches: int
    ages: tuple[tuple[int, int], ...] = ()
    """Staleness when handed out, groups; ascending."""
    drops: tuple[DropCount, ...] = ()
    taken: DropCount = NOTHING_TAKEN
    """The same of what was handed out, to hold the drops against."""
    publishes: tuple[PublishMark, ...] = ()
    """The last 100."""
    first_open: int = 0
    """The first position that is not settled."""
    tasks: int | None = None
    """Of the whole stream; None while its source has not ended."""
    curve: tuple[tuple[int, float], ...] = ()
    """Batch number, mean reward of its rollouts: the last 500 batches that have one."""
    is_paused: bool = False
    """Whether it was paused, also while the state is another one: a publish goes on."""

    @property
    def in_flight(self) -> int:
        """Groups that are being played."""
        return sum(groups for _, groups in self.running)

    @property
    def in_queue(self) -> int:
        """Groups that wait to be handed out."""
        return sum(groups for _, groups in self.queued)
