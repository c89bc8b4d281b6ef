"""Times to first token as a histogram: fixed buckets, counters that only grow.

Histograms of different engines can be added up, and the difference between two readings of one is
the histogram of what happened in between.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TTFT_BOUNDS_S: tuple[float, ...] = (
    0.005, 0.0075, 0.01, 0.015, 0.025, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75,
    1.0, 1.5, 2.5, 3.5, 5.0, 7.5, 10.0, 15.0, 25.0, 40.0, 60.0, 120.0,
)  # fmt: skip
"""Upper ends of the buckets, each included in its own; one more bucket has no end."""


def empty_counts() -> list[int]:
    """A histogram of nothing."""
    return [0] * (len(TTFT_BOUNDS_S) + 1)


def count(counts: list[int], value_s: float) -> None:
    """Add one value to a histogram."""
    counts[bisect_left(TTFT_BOUNDS_S, value_s)] += 1


def quantile(before: Sequence[int], after: Sequence[int], q: float) -> float | None:
    """The value below which a share ``q`` lies of what was added between two readings.

    Linear within a bucket; in the last one, which has no end, its lower bound. None where nothing
    was added. An empty reading is one of nothing; where counts have fallen, the engine started anew
    in between, and all of ``after`` was added since.
    """
    added = [new - old for new, old in zip(after, before, strict=True)] if before else list(after)
    if min(added, default=0) < 0:
        added = list(after)
    wanted, below = q * sum(added), 0
    for (lower, upper), inside in zip(pairwise((0.0, *TTFT_BOUNDS_S)), added, strict=False):
        if inside and below + inside >= wanted:
            return lower + (upper - lower) * (wanted - below) / inside
        below += inside
    return TTFT_BOUNDS_S[-1] if sum(added) else None
