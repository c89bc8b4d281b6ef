"""What sessions did over the last minutes, gathered sample by sample in bounded memory. Pure."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from workbench.metrics.samples import Activity, SessionTurns

if TYPE_CHECKING:
    from workbench.metrics.samples import Sample
    from workbench.types import RoutingEvent

SLOTS = 30
"""Parts of the span; the oldest leaves as a whole."""
PAIRS = 128
"""Sessions by replica that are told apart, the busiest; turns of others count by replica."""
MOVES = 40
"""Moves that are kept, the last ones, however old."""


class Flows:
    """Turns by session and replica over the last ``span_s``.

    Args:
        span_s: how far back it reaches, seconds.
    """

    def __init__(self, span_s: float = 300.0) -> None:
        self.span_s = span_s
        self._slots: deque[_Slot] = deque()
        self._moves: deque[RoutingEvent] = deque(maxlen=MOVES)
        self._last_s = float("-inf")
        self._cursor = 0

    def add(self, sample: Sample) -> None:
        """Count what a sample says; one that is not newer than the last changes nothing."""
        if sample.time_s <= self._last_s:
            return
        self._last_s = sample.time_s
        number = int(sample.time_s / self.span_s * SLOTS)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(_Slot(number))
        while self._slots[0].number <= number - SLOTS:
            self._slots.popleft()
        self._slots[-1].add(sample.activity)
        self._moves.extend(move for move in sample.activity.moves if move.number > self._cursor)
        last = self._moves[-1].number if self._moves else 0
        self._cursor = max(self._cursor, last)

    def activity(self) -> Activity:
        """All of it together, most turns first."""
        pairs: Counter[tuple[str, str]] = Counter()
        others: Counter[str] = Counter()
        for slot in self._slots:
            pairs.update(slot.pairs)
            others.update(slot.others)
        pairs = _busiest(pairs, others)
        return Activity(
            cursor=self._cursor,
            lost=sum(slot.lost for slot in self._slots),
            hot=tuple(SessionTurns(*pair, turns) for pair, turns in pairs.items()),
            others=tuple(others.most_common()),
            moves=tuple(self._moves),
        )


class _Slot:
    """Turns in one part of the span."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.others: Counter[str] = Counter()
        self.lost = 0

    def add(self, activity: Activity) -> None:
        for hot in activity.hot:
            self.pairs[hot.session_id, hot.replica_id] += hot.turns
        for replica_id, turns in activity.others:
            self.others[replica_id] += turns
        self.lost += activity.lost
        self.pairs = _busiest(self.pairs, self.others)


def _busiest(pairs: Counter[tuple[str, str]], others: Counter[str]) -> Counter[tuple[str, str]]:
    """The pairs with the most turns, in that order; turns of the rest go to ``others``."""
    ranked = pairs.most_common()
    for (_, replica_id), turns in ranked[PAIRS:]:
        others[replica_id] += turns
    return Counter(dict(ranked[:PAIRS]))
