"""Groups of which nothing came, and when they are too many. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from workbench.rollout.summary import cause_of
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.trajectory import Trajectory


def failed_row(rows: Sequence[Trajectory]) -> Trajectory | None:
    """One that failed as most of its group did; None where one of them was done."""
    if any(row.status is RolloutStatus.DONE for row in rows):
        return None
    failed = [row for row in rows if row.status is RolloutStatus.FAILED]
    if not failed:
        return None
    cause, _ = Counter(map(cause_of, failed)).most_common(1)[0]
    return next(row for row in failed if cause_of(row) == cause)


class FailureStreak:
    """Counts groups in a row that failed with the same kind of error.

    Args:
        most: so many of them stop the stream.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._cause = ""
        self._length = 0

    def end(self) -> None:
        """A group ended that did not fail."""
        self._cause, self._length = "", 0

    def add(self, cause: str, told: str) -> str:
        """A group failed with this kind of error; why the stream has to stop; empty if it need not.

        ``told``: the error in full.
        """
        self._length = self._length + 1 if cause == self._cause else 1
        self._cause = cause
        groups = "a group" if self._length == 1 else f"{self._length} groups in a row"
        return f"{groups} failed with {told}" if self._length >= self._most else ""
