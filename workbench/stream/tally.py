"""All rollouts of a stream, counted as they end. Pure, and bounded."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from workbench.metrics.samples import RolloutSnapshot
from workbench.rollout.summary import cause_of, reward_bins
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.trajectory import Trajectory

LAST_REWARDS = 1000
"""Of which a histogram is told."""

LAST_ROLLOUTS = 200
"""That others can look at."""


class Tally:
    """Counts; the last rollouts are kept whole."""

    def __init__(self) -> None:
        self._by_status: Counter[RolloutStatus] = Counter()
        self._causes: Counter[str] = Counter()
        self._tokens = 0
        self._reward_sum, self._rewarded = 0.0, 0
        self._rewards: deque[float] = deque(maxlen=LAST_REWARDS)
        self.last: deque[Trajectory] = deque(maxlen=LAST_ROLLOUTS)
        """The rollouts that ended last."""

    def add(self, rows: Sequence[Trajectory]) -> None:
        """These ended."""
        for row in rows:
            self._by_status[row.status] += 1
            self._tokens += row.sampled_tokens
            if row.error:
                self._causes[cause_of(row)] += 1
            if row.reward is not None:
                self._reward_sum += row.reward
                self._rewarded += 1
                self._rewards.append(row.reward)
            self.last.append(row)

    def snapshot(self, **known: Any) -> RolloutSnapshot:
        """All of them; ``known`` are the fields that cannot be counted."""
        return RolloutSnapshot(
            done=self._by_status[RolloutStatus.DONE],
            failed=self._by_status[RolloutStatus.FAILED],
            cancelled=self._by_status[RolloutStatus.CANCELLED],
            sampled_tokens=self._tokens,
            mean_reward=self._reward_sum / self._rewarded if self._rewarded else None,
            failures=tuple(self._causes.most_common()),
            rewards=reward_bins(self._rewards),
            **known,
        )
