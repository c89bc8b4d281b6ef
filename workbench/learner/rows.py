"""Groups of rollouts → rows to learn from. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.learner.objective import group_advantages, token_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.learner.config import LearnerConfig
    from workbench.trajectory import Segment, Trajectory


@dataclass(frozen=True, slots=True)
class Row:
    """One segment of a rollout that is learned from."""

    ids: list[int]
    """All that its last sampled token depends on, without that token."""
    ends: list[int]
    """For each sampled token, how many tokens it depends on, less one: its place in ``ids`` is
    where it is predicted."""
    targets: list[int]
    """The sampled tokens; aligned 1:1 with ``ends``, as is the next."""
    log_probs: list[float]
    advantage: float
    share: float
    """Of each of its tokens in the step's average."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a step learns from, and what it leaves out."""

    rows: list[Row]
    groups: int
    differing: int
    """Groups with rollouts of different rewards: only these are learned from."""
    rollouts: int
    rewards: list[float]
    """Of those that take part, over all groups. Others do not even count in their group's mean."""


def select(groups: Sequence[Sequence[Trajectory]], config: LearnerConfig) -> Selection:
    """Rows of the groups, in their order, those of a group side by side.

    Raises:
        ConfigError: a group has a single rollout, which there is nothing to compare with.
    """
    for group in groups:
        if len(group) < 2:
            problem = f"the group {group[0].group!r} has 1 rollout" if group else "an empty group"
            allowed = "n >= 2: a rollout's advantage is its reward against those of its group"
            raise ConfigError("n", problem, allowed=allowed)
    rewards: list[float] = []
    learned: list[tuple[Trajectory, float]] = []
    differing = 0
    for group in groups:
        known = [rollout.reward if _takes_part(rollout) else None for rollout in group]
        rewards += [reward for reward in known if reward is not None]
        advantages = group_advantages(known, scale=config.scale_advantages)
        if any(advantages):
            differing += 1
            pairs = zip(group, advantages, known, strict=True)
            learned += [(rollout, a) for rollout, a, reward in pairs if reward is not None]
    rows = _rows(learned, config)
    return Selection(rows, len(groups), differing, sum(map(len, groups)), rewards)


def bare(rollout: Trajectory) -> Trajectory:
    """What of it is learned from, which is little and can be sent anywhere."""
    return replace(
        rollout, task={}, turns=(), tool_calls=(), messages=(), traceback="", extra={}, notes=()
    )


def _takes_part(rollout: Trajectory) -> bool:
    """Whether it ended well, has a reward, and log-probabilities to weigh its tokens by."""
    return rollout.reward is not None and all(
        len(segment.log_probs) == len(segment.response_ids) for segment in rollout.segments
    )


def _rows(learned: Sequence[tuple[Trajectory, float]], config: LearnerConfig) -> list[Row]:
    taken = [[_sampled(segment) for segment in rollout.segments] for rollout, _ in learned]
    sizes = [sum(map(len, places)) for places in taken]
    return [
        _row(segment, places, advantage, share)
        for (rollout, advantage), per_segment, share in zip(
            learned, taken, token_shares(sizes, config.average), strict=True
        )
        for segment, places in zip(rollout.segments, per_segment, strict=True)
        if places
    ]


def _sampled(segment: Segment) -> list[int]:
    """Places in its tokens that were sampled; one that nothing leads to cannot be learned."""
    start = len(segment.prompt_ids)
    found = [start + at for at, mask in enumerate(segment.response_mask) if mask]
    return [place for place in found if place > 0]


def _row(segment: Segment, places: Sequence[int], advantage: float, share: float) -> Row:
    ids, start = segment.ids, len(segment.prompt_ids)
    return Row(
        ids[: places[-1]],
        [place - 1 for place in places],
        [ids[place] for place in places],
        [segment.log_probs[place - start] for place in places],
        advantage,
        share,
    )
