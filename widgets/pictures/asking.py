"""What somebody asks of a list of rollouts: to find some, to sort them, to open one. Pure.

Ten thousand rollouts are found and sorted in some hundredths of a second, so nothing is kept from
one picture to the next; only what is on a page is put in words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workbench.trajectory import Trajectory

PER_PAGE = 50
"""Rollouts on a page."""
LONGEST = 200
"""Characters of what somebody types."""

ORDERS: Mapping[str, Callable[[Trajectory], Any]] = {
    "rollout": lambda row: row.rollout_id,
    "group": lambda row: (row.group, row.index),
    "status": lambda row: str(row.status),
    "reward": lambda row: row.reward,
    "ended by": lambda row: row.ended_by or None,
    "turns": lambda row: row.num_turns,
    "sampled tokens": lambda row: row.sampled_tokens,
    "tool calls": lambda row: len(row.tool_calls),
    "wall time (s)": lambda row: row.wall_s,
    "error": lambda row: row.error or None,
}
"""By column: what rollouts are sorted by. What has no value comes last in both directions."""
FALLING = frozenset({"reward", "turns", "sampled tokens", "tool calls", "wall time (s)"})
"""Columns that are sorted from the highest value down at first."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for; equal ones get the same picture."""

    find: str = ""
    """In the id, the error, or what ended it."""
    group: str = ""
    """In the group's name."""
    status: str = ""
    """One of :class:`RolloutStatus`; empty for all."""
    least: float | None = None
    """Reward."""
    most: float | None = None
    sort: str = ""
    """A column of :data:`ORDERS`, after ``-`` from the highest down; empty for the last first."""
    page: int = 0
    compare: str = ""
    """The group whose rollouts to see side by side."""
    turn: int = 0
    """Which turn of an opened rollout, from 1; 0 for all of it."""

    @property
    def is_narrow(self) -> bool:
        """Whether some rollouts may be left out."""
        return bool(self.find or self.group or self.status) or (self.least, self.most) != (
            None,
            None,
        )


EVERYTHING = Asked()
"""Nothing in particular."""


def asked_of(values: Mapping[str, Any]) -> Asked:
    """What a browser asks for; what makes no sense counts as not asked."""
    texts = {name: str(value)[:LONGEST] for name, value in values.items()}
    status, sort = texts.get("status", ""), texts.get("sort", "")
    return Asked(
        find=texts.get("find", ""),
        group=texts.get("group", ""),
        status=status if status in set(RolloutStatus) else "",
        least=_number(texts.get("least", "")),
        most=_number(texts.get("most", "")),
        sort=sort if sort.removeprefix("-") in ORDERS else "",
        page=_whole(texts.get("page", "")),
        compare=texts.get("compare", ""),
        turn=_whole(texts.get("turn", "")),
    )


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _whole(text: str) -> int:
    return int(text[:9]) if text.isascii() and text.isdigit() else 0


def found(rows: Sequence[Trajectory], asked: Asked) -> list[Trajectory]:
    """Those that are asked for, in the order that is asked for.

    Args:
        rows: oldest first.
        asked: what for.
    """
    newest_first = rows[::-1]
    some = [row for row in newest_first if _fits(row, asked)] if asked.is_narrow else newest_first
    return _sorted(some, asked.sort) if asked.sort else list(some)


def _fits(row: Trajectory, asked: Asked) -> bool:
    if asked.status and row.status != asked.status:
        return False
    if asked.group and asked.group.casefold() not in row.group.casefold():
        return False
    if (asked.least, asked.most) != (None, None) and not _is_between(row.reward, asked):
        return False
    find = asked.find.casefold()
    return not find or any(
        find in text.casefold() for text in (row.rollout_id, row.error, row.ended_by)
    )


def _is_between(reward: float | None, asked: Asked) -> bool:
    if reward is None:
        return False
    low = -math.inf if asked.least is None else asked.least
    high = math.inf if asked.most is None else asked.most
    return low <= reward <= high


def _sorted(rows: Sequence[Trajectory], sort: str) -> list[Trajectory]:
    value_of = ORDERS[sort.removeprefix("-")]
    pairs = [(value_of(row), row) for row in rows]
    known = [pair for pair in pairs if not _is_missing(pair[0])]
    known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    return [row for _, row in known] + [row for value, row in pairs if _is_missing(value)]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def next_sort(column: str, sort: str) -> str:
    """What a click on a column's head asks for: one direction, the other, neither."""
    first, second = (f"-{column}", column) if column in FALLING else (column, f"-{column}")
    return {"": first, first: second, second: ""}.get(sort, first)
