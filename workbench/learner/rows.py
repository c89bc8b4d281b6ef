"""Groups of rollouts → rows to learn from. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.learner.objective import group_advantages, token_shares
from workbench.trajectory import RolloutStatus

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
    left_out: Counter[str] = field(default_factory=Counter)
    """Why → rollouts that take no part at all, not even in their group's mean."""
    rewards: list[float] = field(default_factory=list)
    """Of those that take part, over all groups."""


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
    left_out: Counter[str] = Counter()
    rewards: list[float] = []
    learned: list[tuple[Trajectory, float]] = []
    differing = 0
    for group in groups:
        reasons = [_out(rollout) for rollout in group]
        left_out.update(reason for reason in reasons if reason)
        known = [None if why else r.reward for r, why in zip(group, reasons, strict=True)]
        rewards += [reward for reward in known if reward is not None]
        advantages = group_advantages(known, scale=config.scale_advantages)
        if any(advantages):
            differing += 1
            pairs = zip(group, advantages, known, strict=True)
            learned += [(rollout, a) for rollout, a, reward in pairs if reward is not None]
    rows = _rows(learned, config)
    count = sum(map(len, groups))
    return Selection(rows, len(groups), differing, count, left_out, rewards)


def bare(rollout: Trajectory) -> Trajectory:
    """What of it is learned from, which is little and can be sent anywhere."""
    return replace(
        rollout, task={}, turns=(), tool_calls=(), messages=(), traceback="", extra={}, notes=()
    )


def _out(rollout: Trajectory) -> str:
    """Why it takes no part; empty where it does."""
    if rollout.status is not RolloutStatus.DONE:
        return str(rollout.status)
    if rollout.reward is None:
        return "no reward"
    if any(len(s.log_probs) != len(s.response_ids) for s in rollout.segments):
        return "no log-probabilities"
    return ""


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
