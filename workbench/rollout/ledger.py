"""Which rollouts of a batch become rows, and what is left out, by cause. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from workbench.errors import ConfigError
from workbench.trajectory import RolloutStatus, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.tasks import RolloutSpec

OnFailure = Literal["keep", "drop"]


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a batch does about rollouts that fail, and about those that take long.

    Raises:
        ConfigError: a number that is none, or a policy that there is not.
    """

    max_attempts: int = 1
    """How often a rollout that fails is played in all."""
    on_failure: OnFailure = "keep"
    """What becomes of one that failed in the end: a failed row, or none, and a count."""
    spare: int = 0
    """Rollouts per task that are played beyond ``n``. The first ``n`` that are done become rows,
    the others are stopped and counted. What ends late is long more often: rows tend to be short."""
    concurrency: int | None = None
    """Rollouts in flight at once, at most; None leaves it to the pool's load."""

    def __post_init__(self) -> None:
        lowest = {"max_attempts": 1, "spare": 0, "concurrency": 1}
        for name, least in lowest.items():
            value = getattr(self, name)
            is_open = value is None and name == "concurrency"
            if not is_open and (not isinstance(value, int) or value < least):
                raise ConfigError(name, f"{value!r}", allowed=f"a whole number from {least}")
        if self.on_failure not in get_args(OnFailure):
            raise ConfigError(
                "on_failure", f"{self.on_failure!r}", allowed=list(get_args(OnFailure))
            )


class LeftOut(NamedTuple):
    """A rollout that is no row, and why."""

    trajectory: Trajectory
    cause: str
    """``dropped`` (it failed), ``replaced`` (it failed, and a spare one took its place), ``cut``
    (its task had all its rows), or ``spare`` (others that were not done fill its task's rows)."""


class Ledger:
    """Takes rollouts as they end.

    Args:
        specs: all that are played, the spare ones too.
        n: rows per task.
        rules: see :class:`BatchRules`.
    """

    def __init__(self, specs: Sequence[RolloutSpec], n: int, rules: BatchRules) -> None:
        self._specs = specs
        self._n = n
        self._rules = rules
        self._ended: dict[str, Trajectory] = {}
        self._done: defaultdict[str, list[str]] = defaultdict(list)
        """Of each group, in the order in which they were done."""
        self._members: defaultdict[str, list[str]] = defaultdict(list)
        for spec in specs:
            self._members[spec.group].append(spec.rollout_id)

    def __contains__(self, rollout_id: str) -> bool:
        return rollout_id in self._ended

    @property
    def wanted(self) -> int:
        """Rows that there will be, if none is dropped."""
        return self._n * len(self._members)

    def add(self, trajectory: Trajectory) -> list[str]:
        """A rollout ended; which others are not wanted any more."""
        group = trajectory.group
        self._ended[trajectory.rollout_id] = trajectory
        if trajectory.status is RolloutStatus.DONE:
            self._done[group].append(trajectory.rollout_id)
        if len(self._done[group]) < self._n:
            return []
        return [member for member in self._members[group] if member not in self._ended]

    def rows(self) -> list[Trajectory]:
        """What ended and is a row, in the order of the tasks."""
        kept = {rollout_id for group in self._members for rollout_id in self._rows_of(group)}
        return [self._ended[s.rollout_id] for s in self._specs if s.rollout_id in kept]

    def ended(self) -> list[Trajectory]:
        """What ended, rows or not, in the order of the tasks."""
        return [self._ended[s.rollout_id] for s in self._specs if s.rollout_id in self._ended]

    def left_out(self, rows: Sequence[Trajectory] | None = None) -> list[LeftOut]:
        """What ended and is none, in the order of the tasks; ``rows`` if they are at hand."""
        kept = {row.rollout_id for row in (self.rows() if rows is None else rows)}
        return [
            LeftOut(trajectory, self._cause(trajectory))
            for spec in self._specs
            if (trajectory := self._ended.get(spec.rollout_id)) and spec.rollout_id not in kept
        ]

    def missing(self) -> int:
        """Rows that will not come, since their rollouts were dropped."""
        return sum(
            self._n - len(self._rows_of(group))
            for group, members in self._members.items()
            if all(member in self._ended for member in members)
        )

    def _rows_of(self, group: str) -> list[str]:
        """Those that are done, the first of them; where they are too few, others that ended."""
        rows = self._done[group][: self._n]
        for member in self._members[group]:
            if len(rows) == self._n:
                break
            ended = self._ended.get(member)
            if ended is not None and ended.status is not RolloutStatus.DONE:
                is_dropped = ended.status is RolloutStatus.FAILED and self._drops
                if not is_dropped:
                    rows.append(member)
        return rows

    @property
    def _drops(self) -> bool:
        return self._rules.on_failure == "drop"

    def _cause(self, trajectory: Trajectory) -> str:
        if trajectory.status is RolloutStatus.FAILED and self._drops:
            return "dropped"
        is_full = len(self._done[trajectory.group]) >= self._n
        if trajectory.status is RolloutStatus.FAILED:
            return "replaced" if is_full else "spare"
        return "cut" if is_full else "spare"
