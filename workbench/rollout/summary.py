"""Where a batch stands, in figures. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from workbench.errors import PoolError, ReplicaError
from workbench.metrics.samples import RolloutSnapshot
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.ledger import Ledger, LeftOut
    from workbench.trajectory import Trajectory

REWARD_BINS = 20
"""Of a snapshot, at most."""

OF_THE_POOL = frozenset(
    found.__name__ for kind in (PoolError, ReplicaError) for found in (kind, *kind.__subclasses__())
)
"""What a rollout fails with through no fault of its own: it is played again."""


def summary(ledger: Ledger, **known: Any) -> RolloutSnapshot:
    """A batch at this moment; ``known`` are the fields that its ledger cannot know."""
    rows = ledger.rows()
    left_out = ledger.left_out(rows)
    by_status = Counter(row.status for row in rows)
    causes = Counter(cause_of(trajectory) for trajectory in ledger.ended() if trajectory.error)
    rewards = [row.reward for row in rows if row.reward is not None]
    return RolloutSnapshot(
        total=ledger.wanted,
        done=by_status[RolloutStatus.DONE],
        failed=by_status[RolloutStatus.FAILED],
        cancelled=by_status[RolloutStatus.CANCELLED],
        sampled_tokens=sum(row.sampled_tokens for row in rows),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        failures=tuple(causes.most_common()),
        rewards=reward_bins(rewards),
        missing=ledger.missing(),
        left_out=counted(left_out),
        **known,
    )


def cause_of(trajectory: Trajectory) -> str:
    """The type of the error that it failed with; empty for one that did not."""
    return trajectory.error.partition(":")[0]


def counted(left_out: Sequence[LeftOut]) -> tuple[tuple[str, int, int], ...]:
    """Cause, rollouts, their sampled tokens; the most frequent first."""
    rollouts = Counter(out.cause for out in left_out)
    tokens: Counter[str] = Counter()
    for trajectory, cause in left_out:
        tokens[cause] += trajectory.sampled_tokens
    return tuple((cause, number, tokens[cause]) for cause, number in rollouts.most_common())


def reward_bins(rewards: Sequence[float]) -> tuple[tuple[float, float, int], ...]:
    """Equal bins from the least reward to the greatest: from, to, rewards in between.

    The last one has both its ends. One bin where all rewards are the same; none without rewards.
    """
    if not rewards:
        return ()
    low, high = min(rewards), max(rewards)
    width = high / REWARD_BINS - low / REWARD_BINS  # in parts: the whole may be too large
    if not width:
        return ((low, high, len(rewards)),)
    edges = [min(low + i * width, high) for i in range(REWARD_BINS)]
    counts = Counter(bisect_right(edges, reward) - 1 for reward in rewards)
    return tuple((start, end, counts[i]) for i, (start, end) in enumerate(pairwise([*edges, high])))
